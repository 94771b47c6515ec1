"""What was launched and is not in the recording: counted, told from what is only late, and nothing is concluded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from profiles import analyse, read
from profiles.gpus.gather import gather
from profiles.ground.errors import UnreadableRecording
from profiles.model.measures import Measures
from profiles.model.operations import Launches
from profiles.model.timeline import Timeline
from tests.made.build import Build
from tests.recordings import DATA, NSYS, NVPROF, OURS, SHARED, needs_shared, timeline
from tests.tiers import few

MADE = DATA / "made"
CAUSES = ("idle_sync", "idle_launch", "idle_turnaround", "idle_wait")


def launches(timelines: Timeline) -> Launches:
    (gpu,) = gather([timelines])
    return gpu.launches


def launching(lost: set[int], *, steps: int = 20, api: str = "cudaLaunchKernel_v7000", ahead: int = 0) -> Build:
    """A launch and its kernel each 100 ns, but for those that are lost; the host is `ahead` launches."""
    made = Build()
    for number in range(steps):
        called = 100 * number, 100 * number + 10
        if number in lost:
            made.api(api, *called, correlation=10_000 + number)
        else:
            start = 100 * (number + ahead) + 50
            made.kernel(start, start + 60, call=called, api=api)
    return made


@pytest.mark.parametrize("api", ["cudaLaunchKernel_v7000", "cuLaunchKernelEx", "hipExtModuleLaunchKernel"])
@pytest.mark.parametrize("lost", [set(range(8)), {3, 7, 11}, set(range(15, 20))])
def test_launches_without_an_operation_are_lost_wherever_they_lie(lost: set[int], api: str) -> None:
    made = launching(lost, api=api)
    made.api("cudaDeviceSynchronize_v3020", 2_100, 2_200)
    made.api("cudaGetDevice_v3020", 2_300, 2_301)
    found = launches(made.timeline())
    assert (found.count, found.lost, found.graphs, found.captured) == (20, len(lost), 0, 0)


def test_what_was_queued_when_the_recording_ended_is_not_lost() -> None:
    """The host is ten launches ahead: the kernels of the last ten start after the end."""
    assert launches(launching(set(range(10, 20)), ahead=10).timeline()).lost == 0
    ended = launching(set(range(10, 20)), ahead=10)
    ended.api("cudaDeviceSynchronize_v3020", 2_100, 2_200)
    ended.api("cudaGetDevice_v3020", 2_300, 2_301)
    assert launches(ended.timeline()).lost == 10  # the host waited for them, and went on


def test_launches_of_a_gpu_that_was_taken_out_are_not_lost() -> None:
    made = launching(set())
    for number in range(20):
        made.api("cudaLaunchKernel_v7000", 100 * number, 100 * number + 10, tid=2, correlation=20_000 + number)
    assert launches(made.timeline()).lost == 20
    made.device(0), made.device(1)
    assert launches(made.timeline()).lost == 0


def test_calls_of_the_host_and_those_whose_kernels_do_not_tell_their_call_lose_nothing() -> None:
    made = launching(set())
    for number in range(20):
        made.api("cuLaunchHostFunc", 100 * number, 100 * number + 10, correlation=20_000 + number)
    assert launches(made.timeline()).lost == 0
    apart = launching(set(range(10)))
    for number in range(10):
        apart.kernel(100 * number + 50, 100 * number + 90)
    assert launches(apart.timeline()).lost == 0


@needs_shared
def test_kernels_without_a_time_are_placed_by_their_calls_and_not_lost() -> None:
    (gpu,) = gather([read(SHARED / "third" / "made" / "k_zero.json.gz")])
    assert gpu.launches.lost == 0 and len(gpu.lacking) == 96


def kernels_at(times: dict[int, tuple[int, int]], *, called: bool = True) -> Measures:
    """100 kernels of one stream, 60 of each 100 us, launched 100 us ahead; some with other times than these."""
    made = Build()
    for number in range(100):
        start = 1_000_000 + 100_000 * number
        call = (start - 100_000, start - 95_000) if called or number not in times else None
        made.kernel(*times.get(number, (start, start + 60_000)), call=call)
    return analyse([made.timeline()], window="capture").measures


@pytest.mark.parametrize("times", [(0, 0), (9, 3), (1 << 62, (1 << 62) + 1), (10**18, 10**18 + 9)])
def test_the_idle_time_that_an_untimed_kernel_may_have_filled_is_unknown_and_no_other(times: tuple[int, int]) -> None:
    (whole,), (gpu,) = kernels_at({}).gpus, (measures := kernels_at(dict.fromkeys((3, 4, 50), times))).gpus
    assert whole.ledger_ns["idle_wait"] == 99 * 40_000 and whole.ledger_ns["idle_unknown"] == 0
    assert gpu.ledger_ns["idle_unknown"] == 240_000 + 140_000 and gpu.ledger_ns["idle_wait"] == (99 - 5) * 40_000
    assert "3 operations with a launch call, but no usable start and end" in said(measures, "operations-untimed")


def test_what_the_host_did_before_it_launched_an_untimed_kernel_stays_launch() -> None:
    made = Build()
    for number in range(20):
        start = 100_000 * number + 30_000
        times = (0, 0) if number == 10 else (start, start + 60_000)
        made.kernel(*times, call=(start - 10_000, start - 5_000))
    (gpu,) = analyse([made.timeline()], window="capture").measures.gpus
    assert (gpu.ledger_ns["idle_launch"], gpu.ledger_ns["idle_unknown"]) == (18 * 40_000 - 10_000, 110_000)


def test_a_lost_launch_ran_on_the_stream_that_its_thread_used_last() -> None:
    made = launching({50}, steps=100)
    for number in range(0, 100, 2):  # another thread with a stream of its own
        made.kernel(100 * number + 85, 100 * number + 90, stream=9, tid=2, call=(100 * number + 11, 100 * number + 12))
    (gpu,) = analyse([made.timeline()], window="capture").measures.gpus
    assert gpu.launches.lost == 1 and gpu.ledger_ns["idle_unknown"] == 5_150 - 5_010 - 5


@pytest.mark.parametrize(("untimed", "lost"), [(50, 0), (51, 51), (97, 97)])
def test_where_most_kernels_have_no_time_the_others_tell_nothing_of_the_gpu(untimed: int, lost: int) -> None:
    measures = kernels_at(dict.fromkeys(range(100 - untimed, 100), (0, 0)))
    (gpu,) = measures.gpus
    assert gpu.launches == Launches(100, lost)
    assert (gpu.ledger_ns["idle_wait"] is None) == bool(lost) == bool(said(measures, "launches-lost"))


def test_kernels_with_neither_a_time_nor_a_call_are_lost() -> None:
    few, many = (kernels_at(dict.fromkeys(range(count), (0, 0)), called=False).gpus[0] for count in (5, 10))
    assert few.launches == Launches(100, 5) and few.ledger_ns["idle_wait"] == 94 * 40_000
    assert many.launches == Launches(100, 10) and many.ledger_ns["idle_wait"] is None


def test_a_call_of_the_driver_inside_one_of_the_runtime_is_one_launch() -> None:
    made = launching({4, 5, 6})
    for row in list(made.rows["api"]):
        made.api("cuLaunchKernel", row["start_ns"] + 1, row["end_ns"] - 1, correlation=row["correlation"])
    found = launches(made.timeline())
    assert (found.count, found.lost) == (20, 3)


def measured(name: str) -> Measures:
    return analyse([MADE / f"{name}.json.gz"]).measures


def said(measures: Measures, code: str) -> str:
    return "".join(doubt.text for doubt in measures.doubts if doubt.code == code)


@pytest.mark.parametrize(
    ("name", "expected", "text"),
    [
        ("k_drop", Launches(480, 200), "200 of 480 launches have no operation"),
        ("k_hipgraph", Launches(58, 28, 30, 28), "among them 28 of 30 graph launches"),
    ],
)
def test_where_a_tenth_is_lost_idle_time_has_no_causes_and_there_is_no_finding(
    name: str, expected: Launches, text: str
) -> None:
    measures = measured(name)
    (gpu,) = measures.gpus
    assert gpu.launches == expected and text in said(measures, "launches-lost")
    assert [gpu.ledger_ns[cause] for cause in CAUSES] == [None] * 4 and gpu.ledger_ns["idle_unknown"]
    assert {finding.code for finding in measures.findings} <= {"loss-not-judged"}


def test_less_than_a_tenth_is_said_and_takes_only_the_idle_time_that_it_may_have_filled() -> None:
    whole, less = (analyse([launching(lost, steps=100).timeline()]).measures for lost in (set(), {50}))
    assert said(less, "launches-lost") and not said(whole, "launches-lost")
    before, after = (one.gpus[0].ledger_ns for one in (whole, less))
    assert after["idle_unknown"] == 5_150 - 5_010 and before["idle_unknown"] == 0
    assert (before["idle_turnaround"] or 0) - (after["idle_turnaround"] or 0) == 80


def test_a_trace_of_launches_alone_says_what_the_profiler_did() -> None:
    with pytest.raises(UnreadableRecording) as raised:
        read(MADE / "k_none.json.gz")
    assert "480 launches" in raised.value.problem and "warm up" in raised.value.remedy


def test_a_trace_of_a_capture_alone_says_that_nothing_ran(tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((MADE / "k_none.json.gz").read_bytes()))
    calls = [event for event in trace["traceEvents"] if event["cat"] == "cuda_runtime"]
    for event, name in ((calls[0], "hipStreamBeginCapture"), (calls[-1], "hipStreamEndCapture")):
        event["name"] = name
    path = tmp_path / "capture.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(UnreadableRecording) as raised:
        read(path)
    assert "478 launches were only recorded into a graph" in raised.value.problem and "replayed" in raised.value.remedy


@needs_shared
def test_the_recording_of_a_capture_says_that_it_is_one() -> None:
    measures = analyse([SHARED / "third" / "public" / "sglang_capture_bs32.json.gz"]).measures
    (gpu,) = measures.gpus
    assert gpu.launches == Launches(2, 0, 0, 0, 544)
    (doubt,) = [doubt for doubt in measures.doubts if doubt.code == "capture-recording"]
    assert "544 of 546 launches" in doubt.text and "replayed" in doubt.next
    (finding,) = measures.findings
    assert gpu.ledger_ns["idle_launch"] is None and finding.code == "loss-not-judged"
    assert doubt.text in finding.text and finding.change == doubt.next  # not "record steps of a whole model"


@pytest.mark.parametrize(
    "path", few([*OURS, *NSYS, *NVPROF, *sorted(SHARED.glob("*/kineto/*"))]), ids=lambda path: path.name
)
def test_true_recordings_have_lost_nothing(path: Path) -> None:
    """Cut at their ends, of some of the GPUs, of hosts far ahead: h100-2gpu-slice has half of its launches queued."""
    for gpu in gather([timeline(path)]):
        assert gpu.launches.lost == gpu.launches.thinned and bool(gpu.launches.thinned) == ("of-128" in path.name)
