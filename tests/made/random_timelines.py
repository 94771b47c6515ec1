"""Random timelines: streams, overlaps, operations of no length, touching ones, several processes on a GPU."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from profiles.steps.found import FoundSteps
from tests.made.build import Build

TOP = 70
FIRST_STEP = 7
COPIES = ("h2d", "d2h", "p2p", "d2d", "h2h", "other")
CALLS = (
    "cudaStreamSynchronize_v3020",
    "cuCtxSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy_v3020",
    "cuEventQuery",
    "cudaMemcpyAsync_v3020",
    "cudaDeviceSynchronize_v3020",
)
MARKS = ("wait input", "#edge_name=edge_7_IteratorGetNext#", "step 1", "IteratorGetNext", "batch 0", "batch 1")


@st.composite
def spans(draw, longest=25):
    start = draw(st.integers(-5, TOP))
    return start, start + draw(st.integers(0, longest))


@st.composite
def builds(draw, pids=(1, 2)):
    """One recording of one GPU; times in units of 1 ns or 777 ns (turnaround ends at 20 us)."""
    unit = draw(st.sampled_from((1, 777)))
    made = Build(pid=pids[0])

    def times(longest=25):
        start, end = draw(spans(longest))
        return start * unit, end * unit

    for _ in range(draw(st.integers(1, 12))):
        where = {"pid": draw(st.sampled_from(pids)), "stream": draw(st.integers(1, 3)), "context": 1}
        if draw(st.booleans()) or draw(st.booleans()):
            where["call"] = times(15)
        start, end = times()
        what = draw(st.integers(0, 5))
        if what <= 1:
            made.kernel(start, end, draw(st.sampled_from(("k", "ncclDevKernel_AllReduce"))), **where)
        elif what == 2:
            made.graph(start, end, **where)
        elif what == 3:
            made.memset(start, end, **where)
        else:
            made.copy(draw(st.sampled_from(COPIES)), start, end, draw(st.sampled_from((4, 4096, 8192))), **where)
    for _ in range(draw(st.integers(0, 5))):
        made.api(draw(st.sampled_from(CALLS)), *times(), pid=draw(st.sampled_from(pids)))
    for _ in range(draw(st.integers(0, 3))):
        made.mark(draw(st.sampled_from(MARKS)), *times(), pid=draw(st.sampled_from(pids)))
    return made


@st.composite
def found_steps(draw, made: Build):
    """Steps that begin at some kernels' starts, with or without batch gaps."""
    launches = [row for table in ("kernels", "graphs") for row in made.rows[table]]
    starts = sorted({row["start_ns"] for row in launches if draw(st.booleans()) or draw(st.booleans())})
    if not starts:
        return FoundSteps(refused="no kernels")
    edges = [*starts, max(row["end_ns"] for row in launches) + 1]
    last = [
        max(row["end_ns"] for row in launches if lo <= row["start_ns"] < hi)
        for lo, hi in zip(edges[:-1], edges[1:], strict=True)
    ]
    whole = len(starts) - 1
    return FoundSteps(
        source="marks",
        start_ns=np.array(starts[:whole], np.int64),
        end_ns=np.array(starts[1:], np.int64),
        step_number=np.arange(whole),
        last_kernel_end_ns=np.array(last[:whole], np.int64),
        prev_last_kernel_end_ns=np.array([-1, *last][:whole], np.int64),
        all_start_ns=np.array(starts, np.int64),
        all_last_kernel_end_ns=np.array(last if draw(st.booleans()) else [], np.int64),
        all_number=np.arange(len(starts)) if draw(st.booleans()) else np.empty(0, np.int64),
    )


@st.composite
def regular_builds(draw):
    """A training with one or several input copies of a size a step, some steps ahead: what feeding is about."""
    unit = draw(st.sampled_from((1, 777)))
    steps, ahead = draw(st.integers(3, 6)), draw(st.integers(0, 2))
    made, tensors = Build(), draw(st.sampled_from((1, 1, 2, 3)))
    marked, feeds = draw(st.booleans()), draw(st.integers(-1, 1))
    for step in range(-ahead, steps + draw(st.integers(0, 1))):
        at = step * 40
        start = at + draw(st.integers(-6, 8))
        call = start - draw(st.integers(0, 12))
        end = start + draw(st.integers(1, 12))
        thread = draw(st.sampled_from((1, 1, 2, -1)))
        for tensor in range(tensors if draw(st.integers(0, 11)) else 1):
            begun, over = (start + tensor) * unit, (end + tensor) * unit
            made.copy("h2d", begun, over, 4096, stream=2, call=(call * unit, over), tid=thread)
        if marked and draw(st.booleans()):  # the labels
            called = call + draw(st.integers(0, 3))
            made.copy("h2d", end * unit, (end + 1) * unit, 64, stream=2, call=(called * unit, end * unit), tid=thread)
        if marked and draw(st.integers(0, 3)):  # else it was lost
            number = FIRST_STEP + step + ahead + feeds + (draw(st.integers(0, 9)) == 0)
            begun = call - draw(st.integers(-1, 3))
            over = None if draw(st.integers(0, 9)) == 0 else (call + draw(st.integers(1, 4))) * unit
            made.mark(f"batch {number}", begun * unit, over, tid=draw(st.sampled_from((1, 1, 1, 2, -1))))
    for step in range(steps):
        at = step * 40
        for start in (at, at + draw(st.integers(5, 15)), at + draw(st.integers(16, 25))):
            call = start - draw(st.integers(0, 9))
            end = start + draw(st.integers(0, 12))
            returned = call + draw(st.integers(0, 4))
            made.kernel(start * unit, end * unit, call=(call * unit, returned * unit))
        if draw(st.booleans()):
            start = at + draw(st.integers(20, 38))
            made.copy("d2h", start * unit, (start + 1) * unit, stream=3, call=((start - 1) * unit, (start + 2) * unit))
        if draw(st.booleans()):
            start = at + draw(st.integers(-12, 3))
            made.mark("wait input", start * unit, (start + draw(st.integers(1, 8))) * unit)
    if draw(st.booleans()) and draw(st.booleans()):
        made.mark(MARKS[1], 0, 1)
    return made, steps, unit


def regular_steps(made: Build, steps: int, unit: int) -> FoundSteps:
    starts = np.arange(steps, dtype=np.int64) * 40 * unit
    kernels = made.rows["kernels"]
    last = np.array(
        [max(row["end_ns"] for row in kernels if lo <= row["start_ns"] < lo + 40 * unit) for lo in starts.tolist()],
        np.int64,
    )
    return FoundSteps(
        source="marks",
        start_ns=starts[1:-1],
        end_ns=starts[2:],
        step_number=np.arange(1, steps - 1),
        last_kernel_end_ns=last[1:-1],
        prev_last_kernel_end_ns=last[:-2],
        all_start_ns=starts,
        all_last_kernel_end_ns=last,
        all_number=np.arange(steps) + FIRST_STEP,
    )
