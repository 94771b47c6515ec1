"""Kernels of one stream that overlap, and a rank that two recordings claim, are doubted; what may be is not."""

from __future__ import annotations

from itertools import pairwise

import pytest

from profiles import measure
from profiles.model.timeline import Timeline
from profiles.readers import read
from tests.made.build import Build

from ...recordings import DATA


def codes(*timelines: Timeline) -> set[str]:
    return {doubt.code for doubt in measure(list(timelines)).doubts}


def in_turn(overlap: int, **more: int) -> Timeline:
    """Twenty kernels of 100 ns, each of which starts `overlap` ns before the end of the one before."""
    made = Build()
    for number in range(20):
        at = number * (100 - overlap)
        each = {name: number % value if name == "stream" else number + 1 for name, value in more.items()}
        made.kernel(at, at + 100, call=(at - 10, at - 9), **each)
    return made.timeline()


@pytest.mark.parametrize(
    "timeline, doubted",
    [
        (in_turn(0), False),
        (in_turn(10), False),  # launched ahead of the end of the one before
        (in_turn(30), True),
        (in_turn(30, stream=2), False),
        (in_turn(30, graph_node=1), False),  # nodes of a graph have streams of their own
    ],
)
def test_kernels_at_once_on_one_stream_are_doubted(timeline: Timeline, doubted: bool) -> None:
    assert ("impossible-times" in codes(timeline)) == doubted


def test_the_time_of_two_kernels_at_once_is_that_of_plain_loops() -> None:
    made = Build()
    spans = [(0, 100), (20, 80), (90, 130), (200, 300), (250, 260), (255, 290)]
    for start, end in spans:
        made.kernel(start, end, call=(-2, -1))
    (doubt,) = [one for one in measure([made.timeline()]).doubts if one.code == "impossible-times"]
    edges = sorted({edge for span in spans for edge in span})
    busy = [hi - lo for lo, hi in pairwise(edges) if any(lo >= at and hi <= end for at, end in spans)]
    summed = sum(end - start for start, end in spans)
    assert f"for {summed - sum(busy)} ns of the kernels' {summed} ns" in doubt.text


def named(rank: int, device: int, pid: int, name: str) -> Timeline:
    made = Build(device=device, pid=pid, path=name)
    made.mark(f"rank {rank} of 2", 0, 1)
    for at in range(0, 1_000, 100):
        made.kernel(at, at + 60, call=(at - 10, at - 5))
    return made.timeline()


@pytest.mark.parametrize("second, doubted", [(0, True), (1, False)])
def test_two_recordings_whose_marks_name_the_same_rank_are_doubted(second: int, doubted: bool) -> None:
    one, other = named(0, 0, 1, "a.sqlite"), named(second, 1, 2, "b.sqlite")
    found = [doubt for doubt in measure([one, other]).doubts if doubt.code == "rank-twice"]
    assert [doubt.where for doubt in found] == [("/gpus/0/rank", "/gpus/1/rank")] * doubted


def test_two_gpus_of_one_process_may_have_its_rank() -> None:
    made = Build(path="a.sqlite")
    made.mark("rank 0 of 1", 0, 1)
    for at in range(0, 1_000, 100):
        made.kernel(at, at + 60, call=(at - 10, at - 5), device=at // 100 % 2)
    assert "rank-twice" not in codes(made.timeline())


def test_two_real_recordings_of_one_run_have_none_of_these_doubts() -> None:
    pair = [read(DATA / f"dense41m-2gpu-pinned.rank{rank}.sqlite.xz") for rank in (0, 1)]
    assert not codes(*pair) & {"impossible-times", "rank-twice", "host-clock", "copy-left-out"}
