"""A part of an analysis is what the analysis of these recordings alone says of each GPU."""

from __future__ import annotations

from dataclasses import replace

import ringscope
from benchmarks.tables import timeline
from benchmarks.training import Shape
from profiles.many_gpus import part
from profiles.model.measures import gpu_titles
from profiles.views.page import picture

SHAPE = Shape(steps=3, kernels=12, gpus=4, processes=4, hidden_ns=200_000, skew_ns=1_000)


def test_the_gpus_of_a_part_are_those_of_the_whole_with_their_own_recordings_and_operations() -> None:
    timelines = [timeline(SHAPE, range(rank, rank + 1)) for rank in range(4)]
    whole = ringscope.analyse(timelines, operations=True)
    some = part.of(whole, [1, 3])
    assert [gpu.rank for gpu in some.measures.gpus] == [1, 3]
    assert [some.measures.recordings[gpu.recordings[0]].rank for gpu in some.measures.gpus] == [1, 3]
    for place, number in enumerate((1, 3)):
        mine, its = some.measures.gpus[place], whole.measures.gpus[number]
        assert replace(mine, recordings=its.recordings) == its
        assert some.gpus[place].operations is whole.gpus[number].operations and some.gpus[place].gpu == place
        assert some.shift_ns[mine.recordings[0]] == whole.shift_ns[its.recordings[0]]
    assert some.measures.findings == [] and some.measures.doubts == []
    assert picture.pack(some) and some.measures.titles == gpu_titles([(1, 1), (3, 3)])
