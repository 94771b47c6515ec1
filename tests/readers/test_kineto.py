"""Kineto's traces: real ones of others (skipped where absent), and built ones with times no double can hold."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import measure, readers
from profiles.ground.errors import UnreadableRecording
from profiles.model.timeline import Timeline
from profiles.readers.chrome import events as chrome
from profiles.views.terminal import info
from tests.recordings import SHARED

PUBLIC = SHARED / "public" / "kineto"
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no recordings of others in ../shared/recordings/public")


def read(tmp_path: Path, text: str) -> Timeline:
    path = tmp_path / "trace.json"
    path.write_text(text)
    return readers.read(path)


def trace(*events: str, more: str = "") -> str:
    return '{"schemaVersion": 1, ' + more + '"traceEvents": [' + ",\n".join(events) + "]}"


def event(category: str, name: str, ts: str, dur: str, pid: object = 0, tid: object = 7, **args: object) -> str:
    head = f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {json.dumps(pid)}, '
    return head + f'"tid": {json.dumps(tid)}, "ts": {ts}, "dur": {dur}, "args": {json.dumps(args)}}}'


KERNEL = event("kernel", "k", "1", "2", device=0, stream=7, correlation=5)
LAUNCH = event("cuda_runtime", "cudaLaunchKernel", "1", "2", correlation=5)


@needs_public
@pytest.mark.parametrize("rank", [0, 1])
def test_a_real_trace_has_the_counts_times_and_bytes_of_its_json(rank: int) -> None:
    path = PUBLIC / f"rank{rank}-of-128.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    found = readers.read(path)
    assert (found.recording.rank, found.recording.rank_source) == (rank, "format")
    origin = found.recording.origin_ns
    for table, categories in (
        (found.kernels, {"kernel"}),
        (found.copies, {"gpu_memcpy"}),
        (found.memsets, {"gpu_memset"}),
        (found.api, {"cuda_runtime", "cuda_driver"}),
        (found.marks, {"user_annotation"}),
    ):
        chosen = [e for e in events if e["ph"] == "X" and e.get("cat") in categories]
        assert len(table) == len(chosen) > 0
        starts = [int(Decimal(e["ts"]) * 1000) for e in chosen]
        assert (table["start_ns"] + origin).tolist() == starts
        assert (table["end_ns"] + origin).tolist() == [
            s + int(Decimal(e["dur"]) * 1000) for s, e in zip(starts, chosen, strict=True)
        ]
        if "name" in table:
            assert table["name"].astype(str).tolist() == [e["name"] for e in chosen]
    copies = [e["args"]["bytes"] for e in events if e.get("cat") == "gpu_memcpy"]
    assert int(found.copies["bytes"].sum()) == sum(copies)
    # Each operation has its call, in the one process there is.
    joined = found.kernels.merge(found.api, on=["pid", "correlation"])
    assert len(joined) == len(found.kernels)
    assert [doubt.code for doubt in found.doubts] == ["coarse-times"]


@pytest.mark.parametrize("digits", [20, 37, 39, 41, 100, 301])
def test_a_time_beyond_64_bits_is_no_time(digits: int) -> None:
    """2 to the power of 128 and more divides 10**301: what is left in 128 bits is 0."""
    import msgspec

    texts = [f"{sign}1{'0' * (digits - 1)}{rest}" for sign in ("", "-") for rest in ("", ".5", ".000")]
    for text in texts:
        found, good = chrome.nanoseconds([msgspec.Raw(text.encode()), msgspec.Raw(b"5")])
        assert good.tolist() == [False, True] and found.tolist() == [0, 5000], text


def test_decimals_since_1970_come_back_to_the_nanosecond(tmp_path: Path) -> None:
    # A double holds microseconds of the epoch to a quarter of one.
    text = trace(
        event("kernel", "k", "1682725898236567.123", "0.001", device=0, stream=7),
        event("kernel", "k", "1682725898236567.124", "1.999", device=0, stream=7),
    )
    found = read(tmp_path, text)
    assert found.kernels[["start_ns", "end_ns"]].values.tolist() == [[0, 1], [1, 2000]]
    assert found.recording.origin_utc_ns == 1682725898236567123


def test_times_that_count_from_a_base_have_their_utc(tmp_path: Path) -> None:
    text = trace(event("kernel", "k", "5866862.123", "2", device=0, stream=7),
                 more='"baseTimeNanoseconds": 1727743122000000000, ')  # fmt: skip
    assert read(tmp_path, text).recording.origin_utc_ns == 1727743122000000000 + 5866862123
    mark = event("user_annotation", "step 1", "5166119639860", "2")
    host = trace(mark, more='"baseTimeNanoseconds": 1790856000000000000, ')  # fmt: skip
    assert "begun        2026-11-30 07:01:59 UTC" in info.text([read(tmp_path, host)], [])


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**15), 10**15, allow_nan=False, places=None), max_size=8))
def test_any_decimal_is_scaled_as_exact_arithmetic_does(values: list[Decimal]) -> None:
    import msgspec

    texts = [f"{value:f}" for value in values]
    scaled, good = chrome.nanoseconds([msgspec.Raw(text.encode()) for text in texts])
    assert good.all()
    for number, text in zip(scaled.tolist(), texts, strict=True):
        assert abs(Decimal(text) * 1000 - number) <= Decimal("0.5")


def test_a_peer_copy_tells_its_ends_and_the_device_it_ran_on(tmp_path: Path) -> None:
    args = {"fromDevice": 1, "inDevice": 1, "toDevice": 3, "inContext": 2, "stream": 9, "correlation": 4, "bytes": 64}
    copy = event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", "1", "2", **args)
    copies = read(tmp_path, trace(copy)).copies
    columns = ["kind", "device", "context", "stream", "src_device", "dst_device", "bytes", "src_kind", "dst_kind"]
    assert copies[columns].values.tolist() == [["p2p", 1, 2, 9, 1, 3, 64, "device", "device"]]


@pytest.mark.parametrize("device", ["gpu", None, 1.5])
def test_a_kernel_whose_device_is_no_number_ran_on_that_of_its_process(device: object, tmp_path: Path) -> None:
    first = event("kernel", "k", "1", "2", pid=3, device=3, stream=7)
    second = event("kernel", "k", "4", "2", pid=3, device=device, stream=7)
    assert set(read(tmp_path, trace(first, second)).kernels["device"]) == {3}


def test_copies_of_rocm_have_the_bytes_that_their_calls_say_and_are_there_once(tmp_path: Path) -> None:
    call = event("cuda_runtime", "hipMemcpyWithStream", "1", "9", correlation=117, size="2560", kind="1")
    copy = event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", "4", "2", device=2, stream=0, correlation=117)
    found = read(tmp_path, trace(call, copy, copy))
    assert found.copies["bytes"].tolist() == [2560]
    assert found.left_out == {"written twice": 1}


def test_a_trace_of_2021_with_capital_categories_reads(tmp_path: Path) -> None:
    text = trace(
        event("Kernel", "k", "10", "5", device=0, stream=7, correlation=5),
        event("Memcpy", "Memcpy HtoD (Pinned -> Device)", "1", "2", device=0, stream=7, bytes=8),
        event("Runtime", "cudaLaunchKernel", "5", "2", pid=99, tid=100, correlation=5),
        event("Operator", "ProfilerStep#3", "0", "20", pid=99, tid=100),
        event("Operator", "aten::add", "4", "5", pid=99, tid=100),
    )
    found = read(tmp_path, text)
    assert [len(t) for t in (found.kernels, found.copies, found.api, found.marks)] == [1, 1, 1, 1]
    assert found.operators["name"].tolist() == ["aten::add"] and found.left_out == {}
    assert found.kernels["pid"].tolist() == [99]
    assert found.copies["src_kind"].tolist() == ["pinned"]


def test_calls_of_several_processes_own_what_they_launched(tmp_path: Path) -> None:
    text = trace(
        event("kernel", "k", "10", "5", device=0, stream=7, correlation=5),
        event("kernel", "k", "20", "5", device=1, stream=7, correlation=6),
        event("kernel", "k", "30", "5", device=1, stream=7, correlation=7),
        event("cuda_runtime", "cudaLaunchKernel", "5", "2", pid=1, correlation=5),
        event("cuda_runtime", "cudaLaunchKernel", "6", "2", pid=2, correlation=6),
    )
    assert read(tmp_path, text).kernels["pid"].tolist() == [1, 2, -1]


def test_events_that_are_none_are_counted_and_the_others_read(tmp_path: Path) -> None:
    timeless = '{"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 1}'
    backwards = event("kernel", "k", "5", "-1", device=0, stream=7)
    text = trace(KERNEL, "3", timeless, '"text"', backwards, '{"ph": "X", "cat": "kernel", "args": [1]}')
    found = read(tmp_path, text)
    assert len(found.kernels) == 1
    assert found.left_out == {"not an event": 3, "without times": 1, "end before they start: kernels": 1}


def test_values_that_json_does_not_have_are_passed_over(tmp_path: Path) -> None:
    broken = KERNEL.replace('"correlation": 5', '"correlation": 5, "memory bandwidth (GB/s)": inf, "x": NaN')
    assert read(tmp_path, trace(broken)).kernels["correlation"].tolist() == [5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (trace(KERNEL)[:-5], "cut short or damaged"),
        (trace(event("cpu_op", "aten::add", "1", "2")), "1 event of the host and none of a GPU"),
        (
            trace(event("mtia_ccp_events", "pe_exe", "1", "2"), LAUNCH),
            "MTIA, an accelerator that is not a GPU: 1 of the events",
        ),
        (trace(event("hpu_op", "gemm", "1", "2"), LAUNCH), r"Gaudi \(HPU\), an accelerator that is not a GPU"),
        (trace(event("cuda_profiler_range", "k", "1", "2"), LAUNCH), "range profiler: 1 ranges with counters"),
        (trace(LAUNCH), "1 launch without operations: the profiler dropped"),
        (
            trace(event("cuda_runtime", "cudaMemcpyAsync", "1", "2")),
            "1 launch without operations: the profiler dropped",
        ),
        (
            trace(event("cpu_op", "aten::add", "1", "2"), event("cuda_runtime", "cudaDeviceSynchronize", "3", "1")),
            "1 call of CUDA or HIP, and no work for a GPU; move the model and its inputs to the GPU",
        ),
        (trace(), "without GPU events"),
        ('{"schemaVersion": 1, "traceEvents": 3}', "not a trace"),
        ('{"schemaVersion": 1, "deviceProperties": []}', "not a trace"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_own_reason(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match=said):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ([], "record with ProfilerActivity.CPU and ProfilerActivity.CUDA"),
        ([event("cpu_op", "aten::add", "1", "2")], "call prof.step() after each step"),
    ],
)
def test_a_trace_with_operators_is_not_advised_to_record_them(host: list[str], said: str, tmp_path: Path) -> None:
    doubts = measure([read(tmp_path, trace(KERNEL, LAUNCH, *host))]).doubts
    (doubt,) = [one for one in doubts if one.code == "no-marks"]
    assert doubt.next.startswith(said)


@pytest.mark.parametrize("launch", ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"])
def test_what_a_graphs_replay_ran_is_linked_to_its_launch_and_numbered(launch: str, tmp_path: Path) -> None:
    """A kernel by itself, then twice a graph of a memset and two kernels; the second launch is a call within a call."""
    events = [
        event("cuda_runtime", "cudaLaunchKernel", "10", "5", pid=9, tid=9, correlation=1),
        event("kernel", "alone", "20", "10", device=0, stream=7, correlation=1),
    ]
    for number, at in ((2, 100), (3, 200)):
        events += [
            event("cuda_runtime", launch, str(at), "8", pid=9, tid=9, correlation=number),
            event("kernel", "second", str(at + 34), "20", device=0, stream=7, correlation=number),
            event("kernel", "first", str(at + 12), "20", device=0, stream=7, correlation=number),
            event("gpu_memset", "Memset (Device)", str(at + 10), "1", device=0, stream=7, correlation=number, bytes=8),
        ]
    events.append(event("cuda_driver", launch, "201", "6", pid=9, tid=9, correlation=3))
    found = read(tmp_path, trace(*events))
    kernels = found.kernels.sort_values("start_ns")
    assert kernels["name"].tolist() == ["alone", "first", "second", "first", "second"]
    assert kernels["graph_node"].tolist() == [0, 1, 2, 1, 2]
    assert found.memsets["graph_node"].tolist() == [1, 1]
    (gpu,) = measure(tmp_path / "trace.json", window="capture").gpus
    assert gpu.kernels.graph_nodes == 4 and gpu.kernels.count == 5
    # Both gaps in each replay come after the call returned; the two before the replays end after their calls began.
    ledger = gpu.ledger_ns
    assert (ledger["idle_turnaround"], ledger["idle_launch"]) == (2 * (1_000 + 2_000), 80_000 + 56_000)
    assert gpu.hand_over_ns == {"in_graphs": {"count": 4, "p50_ns": 1_000}}


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"])
def test_calls_of_every_runtime_are_calls(category: str, tmp_path: Path) -> None:
    call = event(category, "hipLaunchKernel", "1", "2", pid=9, tid=4, correlation=5)
    found = read(tmp_path, trace(call, KERNEL))
    assert found.api["name"].tolist() == ["hipLaunchKernel"] and found.kernels["pid"].tolist() == [9]


def test_a_trace_of_pythons_calls_says_that_they_slow_the_host_down(tmp_path: Path) -> None:
    calls = [event("python_function", f"model.py({line}): forward", str(line), "1") for line in range(2)]
    for count, doubted in ((2, True), (1, False)):
        path = tmp_path / f"{count}.json"
        path.write_text(trace(KERNEL, KERNEL.replace('"correlation": 5', '"correlation": 6'), *calls[:count]))
        found = [doubt for doubt in readers.read(path).doubts if doubt.code == "python-traced"]
        assert bool(found) is doubted
        assert not found or "2 Python calls" in found[0].text and "with_stack=False" in found[0].next


def test_an_event_of_more_than_a_name_may_have_is_left_out_and_counted(tmp_path: Path) -> None:
    """Twenty of them with a letter beyond Latin took 6 GB, as Python holds four bytes a letter then."""
    long = event("kernel", "\N{GRINNING FACE}" + "k" * (1 << 20), "1", "2", device=0, stream=7)
    found = read(tmp_path, trace(KERNEL, long))
    assert len(found.kernels) == 1 and found.left_out["not an event"] == 1
