"""Launch calls on another clock than the GPU's are found by operations at times that these calls rule out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles import measure
from profiles.gpus.gather import gather
from profiles.model.timeline import Timeline
from profiles.readers import read
from tests.made.build import Build

from ...recordings import DATA

US = 1000


def moved(timeline: Timeline, by_ns: int) -> Timeline:
    """The timeline with the times of its GPU operations moved by so many ns."""
    tables = {name: getattr(timeline, name) for name in ("kernels", "graphs", "copies", "memsets")}
    return replace(
        timeline,
        **{
            name: table.assign(start_ns=table["start_ns"] + by_ns, end_ns=table["end_ns"] + by_ns)
            for name, table in tables.items()
        },
    )


@pytest.mark.parametrize("by_us, apart", [(0, False), (-20, False), (-60, True), (-1_000, True)])
def test_a_gpu_clock_that_is_off_by_a_millisecond_in_a_real_recording_is_doubted(by_us: int, apart: bool) -> None:
    recording = read(DATA / "dense41m-2gpu-pinned.rank0.sqlite.xz")
    found = measure([moved(recording, by_us * US)])
    assert ("host-clock" in {doubt.code for doubt in found.doubts}) == apart
    assert found.trust.verdict == ("with care" if apart else "yes")


def test_calls_in_microseconds_beside_operations_in_nanoseconds_have_another_clock() -> None:
    recording = read(DATA / "resnet50-2gpu-prefetch.rank0.sqlite.xz")
    times = {one: recording.api[one] // 1_000 for one in ("start_ns", "end_ns")}
    found = measure([replace(recording, api=recording.api.assign(**times))])
    assert "host-clock" in {doubt.code for doubt in found.doubts}
    assert found.trust.verdict == "with care" and found.gpus[0].ledger_ns["idle_launch"] is None


@pytest.mark.filterwarnings("error")
def test_calls_that_a_damaged_recording_has_years_apart_are_on_the_gpus_clock() -> None:
    """800 times their distance, by which a microsecond is found out, is more than an int64."""
    made = Build()
    for at in (0, 400 * 86_400 * 10**9):
        made.kernel(at + 10_000, at + 20_000, call=(at, at + 5_000))
    assert gather([made.timeline()])[0].off_clock == ()


def in_microseconds(timeline: Timeline) -> Timeline:
    """The timeline with the times of its marks, counted from the recording's own zero, divided by 1000."""
    zero = timeline.recording.origin_ns
    times = {one: (timeline.marks[one] + zero) // 1_000 - zero for one in ("start_ns", "end_ns")}
    return replace(timeline, marks=timeline.marks.assign(**times))


@pytest.mark.parametrize("name", ["lstm-1gpu.rank0", "dense41m-2gpu-pinned.rank0", "resnet50-2gpu-device.rank1"])
def test_marks_alone_in_microseconds_beside_operations_in_nanoseconds_have_another_clock(name: str) -> None:
    found = measure([in_microseconds(read(DATA / f"{name}.sqlite.xz"))])
    assert "host-clock" in {doubt.code for doubt in found.doubts}
    assert found.trust.verdict == "with care" and found.gpus[0].ledger_ns["idle_launch"] is None


def marked(*spans_us: tuple[int, int], origin_ns: int = 0) -> Timeline:
    """100 kernels, one every 10 ms from 1 s on, and marks at these times; the recording's own zero lies `origin_ns`
    before 0."""
    made = Build(origin_ns=origin_ns)
    for number in range(100):
        at = (1_000_000 + number * 10_000) * US
        made.kernel(at, at + 9_000 * US, call=(at - 9 * US, at - 4 * US))
    for number, (start_us, end_us) in enumerate(spans_us):
        made.mark(f"step {number}", start_us * US, end_us * US)
    return made.timeline()


STEPS_US = [(1_000_000 + number * 10_000, 1_009_000 + number * 10_000) for number in range(100)]


@pytest.mark.parametrize("origin_ns", [0, 10**9, 3_600 * 10**9])
def test_marks_in_microseconds_are_found_wherever_the_recording_counts_from(origin_ns: int) -> None:
    whole = marked(*STEPS_US, origin_ns=origin_ns)
    assert [gpu.off_clock for gpu in gather([whole])] == [()]
    assert [gpu.off_clock for gpu in gather([in_microseconds(whole)])] == [(0,)]
    assert [gpu.off_clock for gpu in gather([in_microseconds(whole)], [7 * 10**9])] == [(0,)]


@pytest.mark.parametrize(
    "spans_us",
    [
        (),
        [(1_000, 1_500)],  # one range at the start of the process
        [(900 + number, 901 + number) for number in range(50)],  # ranges of libraries as they are loaded
        [(2_500_000 + number, 2_500_001 + number) for number in range(50)],  # of an evaluation, after the last kernel
        [(1_000, 1_009), *STEPS_US],  # a range at the start of the process, and one in each step
    ],
)
def test_marks_far_from_all_operations_are_no_sign_of_another_clock(spans_us: list[tuple[int, int]]) -> None:
    assert [gpu.off_clock for gpu in gather([marked(*spans_us)])] == [()]


def ran(latency_us: int = 5, early: int = 0, ends_after_us: int | None = None, devices: int = 1) -> Timeline:
    """200 kernels of 10 µs, of which `early` start 30 µs before their calls; a call waits for each of the others, and
    returns so long before it ends."""
    made = Build()
    for number in range(200):
        at = number * 1_000 * US
        call = at + 30 * US if number < early else at - latency_us * US
        made.kernel(at, at + 10 * US, call=(call, call + US), device=number % devices)
        if ends_after_us is not None:
            made.api("cudaDeviceSynchronize_v3020", call + 2 * US, at + 10 * US - ends_after_us * US)
    return made.timeline()


@pytest.mark.parametrize(
    "timeline, apart",
    [
        (ran(), [()]),
        (ran(early=2), [()]),  # 1 %
        (ran(early=3), [(0,)]),
        (ran(latency_us=60, ends_after_us=0), [()]),
        (ran(latency_us=60, ends_after_us=20), [()]),
        (ran(latency_us=60, ends_after_us=21), [(0,)]),
        (ran(latency_us=60, ends_after_us=21, devices=2), [(), ()]),  # a call waits for one of the process's GPUs
    ],
)
def test_over_one_operation_in_a_hundred_before_its_call_or_after_a_wait_for_it_has_another_clock(
    timeline: Timeline, apart: list[tuple[int, ...]]
) -> None:
    assert [gpu.off_clock for gpu in gather([timeline])] == apart


def test_copies_may_start_before_their_calls_as_nvprofs_do() -> None:
    made = Build()
    for at in range(0, 2_000 * US, 100 * US):
        made.copy("h2d", at, at + 20 * US, call=(at + 15 * US, at + 30 * US))
        made.copy("d2h", at + 50 * US, at + 60 * US, call=(at + 190 * US, at + 195 * US))
    (gpu,) = gather([made.timeline()])
    assert gpu.off_clock == ()
