"""Cycles of kernels against counters and loops in plain Python."""

from __future__ import annotations

from collections import Counter
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.gpus.gather import gather
from profiles.steps import marks, period
from profiles.steps.cycles import agreement, boundaries, kernel_sequence
from profiles.steps.layers import repeat_layers
from tests.made.build import Build

names = st.lists(st.integers(-2, 6), min_size=12, max_size=200)


@st.composite
def cut(draw):
    """A sequence of names and ascending edges in it."""
    sequence = draw(names)
    edges = draw(st.sets(st.integers(0, len(sequence)), min_size=3, max_size=12))
    return sequence, sorted(edges)


def plain_agreement(sequence: list[int], edges: list[int]) -> list[bool]:
    cycles = [sequence[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    size = median(len(cycle) for cycle in cycles)
    sample = [Counter(cycle) for cycle in cycles if abs(len(cycle) - size) <= 0.04 * size]
    if not sample:
        return [False] * len(cycles)
    usual = Counter({name: int(median(one[name] for one in sample)) for name in set(sequence)})
    found = []
    for cycle in cycles:
        shared = sum((Counter(cycle) & usual).values())
        found.append(shared >= 0.98 * max(len(cycle), sum(usual.values())))
    return found


@settings(deadline=None)
@given(cut())
def test_cycles_agree_that_share_98_of_100_kernels_with_the_usual_one(case):
    sequence, edges = case
    found = agreement(np.array(sequence, np.int32), np.array(edges))
    assert found.tolist() == plain_agreement(sequence, edges)


def timeline_of(pauses: list[int], named: list[int]):
    made, now = Build(), 0
    for pause, name in zip(pauses, named, strict=True):
        made.kernel(now + pause, now + pause + 1_000, f"kernel{name}")
        now += pause + 1_000
    return made.timeline()


@settings(deadline=None, max_examples=30)
@given(st.integers(5, 12), st.integers(4, 9), st.integers(0, 8), st.randoms())
def test_boundaries_are_the_longest_pauses_where_every_cycle_is_alike(cycles, size, gap_at, chance):
    gap_at %= size
    pauses = [
        chance.randint(1_000_000, 2_000_000) if place == gap_at else chance.randint(0, 5_000)
        for _ in range(cycles)
        for place in range(size)
    ]
    (gpu,) = gather([timeline_of(pauses, list(range(size)) * cycles)])
    edges = np.arange(cycles + 1) * size
    found = boundaries(kernel_sequence(gpu), edges[:-1])
    longest = []
    for first in edges[:-2].tolist():
        longest.append(max(range(first, first + size), key=lambda place: (pauses[place], -place)))
    if gap_at == 0:
        # The very first kernel ends no pause that the recording saw, and the last edge is a boundary itself.
        longest.append(int(edges[-2]))
    assert found.quiet
    assert found.place.tolist() == longest


@settings(deadline=None)
@given(names)
def test_a_period_is_given_only_where_a_plain_count_finds_one(sequence):
    found = period.by_kernels(np.array(sequence, np.int32))
    if isinstance(found, str):
        assert found
        return
    cycles = [Counter(sequence[a:b]) for a, b in zip(found.edges, found.edges[1:], strict=False)]
    usual, _ = Counter(tuple(sorted(cycle.items())) for cycle in cycles).most_common(1)[0]
    agreeing = [cycle for cycle, agrees in zip(cycles, found.agrees, strict=True) if agrees]
    assert len(agreeing) >= 5
    # Cycles this small agree within 2 % where they are equal.
    assert all(tuple(sorted(cycle.items())) == usual for cycle in agreeing)
    assert found.edges[-1] - found.edges[0] >= len(sequence) / 2
    assert (
        sum(cycle.total() for cycle in agreeing) >= 0.9 * (found.edges[-1] - found.edges[0]) or found.explained >= 0.9
    )


@pytest.mark.parametrize(
    ("label", "layers", "is_layer"),
    [
        ("FSDP::pre_forward (blocks.{}.mlp)", 12, True),
        ("batch {}", 12, False),
        ("FSDP::pre_forward (blocks.{}.mlp)", 1, False),
    ],
)
def test_cycles_under_another_layer_each_are_layers(label, layers, is_layer):
    made = Build()
    for cycle in range(12):
        made.mark(label.format(cycle % layers), cycle * 1000, cycle * 1000 + 900)
        for place in range(4):
            at = cycle * 1000 + 100 * place
            made.kernel(at + 50, at + 60, f"kernel{place}", call=(at + 10, at + 20))
    timelines = [made.timeline()]
    (gpu,) = gather(timelines)
    sequence = kernel_sequence(gpu)
    assert repeat_layers(sequence, np.arange(13) * 4, gpu, timelines, [0]) == is_layer


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True), st.lists(st.integers(0, 60), max_size=30))
def test_a_kernel_belongs_to_the_last_mark_before_its_launch(mark_starts, calls):
    made = Build()
    for place, start in enumerate(sorted(mark_starts)):
        made.mark(f"step {place}", start, start + 1)
    for place, call in enumerate(calls):
        made.kernel(100 + 2 * place, 101 + 2 * place, call=(call, call + 1))
    made.kernel(1_000, 1_001)  # whose launch is not known
    timelines = [made.timeline()]
    (gpu,) = gather(timelines)
    found = marks.find(gpu, timelines, [0], marks.STEP)
    expected = [sum(start < call for start in mark_starts) - 1 for call in calls]
    owner = marks.owners(kernel_sequence(gpu), found)
    if calls:
        assert owner.tolist() == [*expected, -1]
    else:
        assert owner is None
