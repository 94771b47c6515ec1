"""rocprofv3's results.json, made as source/docs/rocprofv3-schema.json of ROCm/rocprofiler-sdk describes it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse, measure
from profiles.ground.errors import UnreadableRecording
from profiles.readers import read
from tests.recordings import SHARED

REAL = SHARED.parent / "strangers" / "AMD-AGI__TraceLens__908_results.json.gz"
T = 63_857_982_592_000  # ns since the machine began
KINDS: dict[str, list[str]] = {
    "NONE": [],
    "HIP_RUNTIME_API": ["hipMemcpyAsync", "hipLaunchKernel", "hipStreamSynchronize"],
    "HSA_AMD_EXT_API": ["hsa_amd_memory_async_copy_on_engine", "hsa_amd_agents_allow_access"],
    "MARKER_CORE_RANGE_API": ["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA", "roctxGetThreadId"],
    "MEMORY_COPY": [f"MEMORY_COPY_{way}" for way in ("NONE", "HOST_TO_HOST", "HOST_TO_DEVICE", "DEVICE_TO_HOST",
                                                     "DEVICE_TO_DEVICE")],
    "KERNEL_DISPATCH": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"],
}  # fmt: skip
KERNELS = ["", "conv(float*)", "relu(float*)"]
CPU, GPU0, GPU1 = 37944, 37946, 37947


def agent(handle: int, kind: int, number: int, **more: Any) -> dict[str, Any]:
    return {"size": 312, "id": {"handle": handle}, "type": kind, "logical_node_type_id": number, **more}


def gpu(handle: int, number: int) -> dict[str, Any]:
    uuid = {"bytes": {f"value{at}": 16 * number + at for at in range(16)}}
    named = {
        "name": "gfx950",
        "product_name": "AMD Instinct MI350X",
        "domain": 0,
        "location_id": 0xE500 + (number << 3),
    }
    return agent(handle, 2, number, uuid=uuid, **named)


class Made:
    """The records of one process."""

    def __init__(self, pid: int = 908) -> None:
        self.pid = pid
        self.records: dict[str, list[Any]] = {
            name: [] for name in ("kernel_dispatch", "hip_api", "hsa_api", "marker_api", "memory_copy")
        }
        self.messages: list[dict[str, Any]] = []

    def record(self, table: str, operation: str, begin: int, end: int, correlation: int, **more: Any) -> None:
        names = list(KINDS)
        kind = next(at for at, name in enumerate(names) if operation in KINDS[name])
        place = KINDS[names[kind]].index(operation)
        made = {"size": 184, "kind": kind, "operation": place, "thread_id": self.pid + 1}
        made |= {"correlation_id": {"internal": correlation, "external": 0}}
        self.records[table].append({**made, "start_timestamp": T + begin, "end_timestamp": T + end, **more})

    def kernel(self, number: int, begin: int, end: int, correlation: int, *, on: int = GPU0, stream: int = 5) -> None:
        told = {"agent_id": {"handle": on}, "queue_id": {"handle": 18}, "kernel_id": number, "dispatch_id": correlation}
        more = {"dispatch_info": told, "stream_id": {"handle": stream}}
        self.record("kernel_dispatch", "KERNEL_DISPATCH_COMPLETE", begin, end, correlation, **more)

    def copy(self, way: str, begin: int, end: int, correlation: int, source: int, target: int, size: int) -> None:
        agents = {"src_agent_id": {"handle": source}, "dst_agent_id": {"handle": target}}
        more = {**agents, "bytes": size, "stream_id": {"handle": 5}}
        self.record("memory_copy", f"MEMORY_COPY_{way}", begin, end, correlation, **more)

    def mark(self, text: str, begin: int, end: int, correlation: int) -> None:
        self.messages.append({"key": correlation, "value": text})
        self.record("marker_api", "roctxThreadRangeA", begin, end, correlation)

    def process(self) -> dict[str, Any]:
        kinds = [{"kind": kind, "operations": operations} for kind, operations in KINDS.items()]
        names = [{"kernel_id": at, "formatted_kernel_name": name} for at, name in enumerate(KERNELS)]
        return {
            "metadata": {"node": {"hostname": "amd1"}, "pid": self.pid, "init_time": T, "fini_time": T},
            "agents": [agent(CPU, 1, 0), gpu(GPU0, 0), gpu(GPU1, 1)],
            "strings": {"buffer_records": kinds, "marker_api": self.messages},
            "kernel_symbols": names,
            "buffer_records": self.records,
        }


def results(path: Path, *processes: Made) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [one.process() for one in processes]}))
    return path


def training(pid: int = 908, on: int = GPU0) -> Made:
    """Six steps of a copy and two kernels: the copy launched through HSA, the second kernel 40 us late."""
    made = Made(pid)
    for number in range(6):
        at, correlation = 1_000_000 * number, 10 * number
        made.mark(f"step {number}", at, at + 900_000, correlation + 1)
        made.record("hip_api", "hipMemcpyAsync", at + 1_000, at + 5_000, correlation + 2)
        made.record("hsa_api", "hsa_amd_memory_async_copy_on_engine", at + 2_000, at + 4_000, correlation + 3)
        made.record("hsa_api", "hsa_amd_agents_allow_access", at + 4_000, at + 4_500, correlation + 4)
        made.copy("HOST_TO_DEVICE", at + 20_000, at + 120_001, correlation + 3, CPU, on, 4096)
        for kernel, called, begin, end in ((1, 6_000, 125_003, 400_005), (2, 405_000, 445_007, 600_000)):
            made.record("hip_api", "hipLaunchKernel", at + called, at + called + 40_000, correlation + 5 + kernel)
            made.kernel(kernel, at + begin, at + end, correlation + 5 + kernel, on=on)
    return made


def test_operations_calls_and_ranges_are_read_to_the_nanosecond(tmp_path: Path) -> None:
    timeline = read(results(tmp_path / "908_results.json", training()))
    assert (timeline.recording.format, timeline.recording.host) == ("rocprofv3", "amd1")
    assert timeline.recording.origin_ns == T + 20_000
    sizes = {name: len(getattr(timeline, name)) for name in ("kernels", "copies", "api", "marks", "devices")}
    # Of HSA's calls there are those that launched something.
    assert sizes == {"kernels": 12, "copies": 6, "api": 24, "marks": 6, "devices": 1}
    first = timeline.kernels.iloc[0]
    assert (first.start_ns, first.end_ns, first.device, first.stream, first.pid) == (105_003, 380_005, 0, 5, 908)
    assert str(first["name"]) == "conv(float*)"
    copy = timeline.copies.iloc[1]
    assert (copy.kind, copy.bytes, copy.start_ns) == ("h2d", 4096, 1_000_000)
    calls = timeline.api.set_index("correlation")["name"]
    assert calls[int(copy.correlation)] == "hsa_amd_memory_async_copy_on_engine"
    assert set(calls[timeline.kernels["correlation"]]) == {"hipLaunchKernel"}
    device = timeline.devices.iloc[0]
    assert (device["name"], device.bus_id) == ("AMD Instinct MI350X", "0000:e5:00.0")
    assert device.uuid == "GPU-" + bytes(range(16)).hex()


def test_it_is_measured_like_any_other_recording(tmp_path: Path) -> None:
    measures = analyse([results(tmp_path / "results.json", training())], window="steps").measures
    (gpu,) = measures.gpus
    assert (gpu.steps.source, gpu.steps.count, gpu.steps.partial) == ("marks", 6, 0)
    # The second kernel of each step was launched late.
    assert gpu.ledger_ns["idle_launch"] >= 6 * 45_002
    assert gpu.ledger_ns["compute"] == 6 * (275_002 + 154_993)
    assert gpu.framework == "hip"
    assert not [doubt for doubt in measures.doubts if "nsys" in doubt.next]


def test_each_process_and_each_gpu_keeps_its_own(tmp_path: Path) -> None:
    second = training(909, GPU1)
    second.copy("DEVICE_TO_DEVICE", 700_000, 710_000, 99, GPU1, GPU0, 64)
    second.copy("DEVICE_TO_DEVICE", 710_000, 720_000, 98, GPU1, GPU1, 64)
    second.copy("DEVICE_TO_HOST", 720_000, 730_000, 97, GPU1, CPU, 64)
    second.copy("HOST_TO_HOST", 730_000, 740_000, 96, CPU, CPU, 64)
    timeline = read(results(tmp_path / "results.json", training(), second))
    assert Counter(zip(timeline.kernels["pid"], timeline.kernels["device"], strict=True)) == {
        (908, 0): 6 * 2,
        (909, 1): 12,
    }
    last = timeline.copies.tail(3)
    assert list(zip(last["kind"], last["device"], last["src_device"], last["dst_device"], strict=True)) == [
        ("p2p", 0, 1, 0),
        ("d2d", 1, -1, -1),
        ("d2h", 1, -1, -1),
    ]
    assert timeline.left_out == {"operations that name no GPU": 1}


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda made: made["buffer_records"].update(kernel_dispatch=[], memory_copy=[]), "without a kernel or copy"),
        (lambda made: made.update(agents=[]), "without a kernel or copy"),
        (lambda made: made.update(strings=7), "not a trace"),
    ],
    ids=["no operations", "no GPUs", "no strings"],
)
def test_what_holds_no_gpu_work_is_refused(tmp_path: Path, damage: Any, problem: str) -> None:
    made = training().process()
    damage(made)
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [made]}))
    with pytest.raises(UnreadableRecording, match=problem):
        read(path)


def test_odd_records_are_left_out_and_counted(tmp_path: Path) -> None:
    made = training()
    made.kernel(1, 900, 100, 7)
    made.kernel(99, 700_000, 700_100, 7)
    made.records["kernel_dispatch"] += [7, {"kind": "x"}, {"dispatch_info": None}]
    made.records["marker_api"].append({"kind": 3, "operation": 99})
    timeline = read(results(tmp_path / "results.json", made))
    assert len(timeline.kernels) == 13
    expected = {"end before they start: kernels": 1, "not a record": 3, "calls of rocTX without a text": 1}
    assert timeline.left_out == expected
    assert {doubt.code for doubt in timeline.doubts} == {"impossible-times"}


@pytest.mark.skipif(not REAL.is_file(), reason="no files of others in ../shared/strangers")
def test_a_real_recording_is_as_plain_loops_over_the_file_say() -> None:
    (process,) = json.loads(gzip.decompress(REAL.read_bytes()))["rocprofiler-sdk-tool"]
    dispatches = process["buffer_records"]["kernel_dispatch"]
    spans = sorted((one["start_timestamp"], one["end_timestamp"]) for one in dispatches)
    busy, until = 0, 0
    for start, end in spans:
        busy += max(0, end - max(start, until))
        until = max(until, end)
    names = {one["kernel_id"]: one["formatted_kernel_name"] for one in process["kernel_symbols"]}
    timeline = read(REAL)
    counted = Counter(names[one["dispatch_info"]["kernel_id"]] for one in dispatches)
    assert Counter(timeline.kernels["name"]) == counted
    (gpu,) = measure([timeline], window="capture").gpus
    assert gpu.span_ns == until - spans[0][0] and gpu.kernels.count == len(dispatches)
    assert (gpu.ledger_ns["compute"] or 0) + (gpu.ledger_ns["collective"] or 0) == busy
    assert gpu.name == "AMD Instinct MI350X"
