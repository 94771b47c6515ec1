"""The interval algebra against a bitmap of instants."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from profiles.ground import intervals
from profiles.ground.intervals import Intervals

TOP = 60
pieces = st.lists(st.tuples(st.integers(-5, TOP), st.integers(-5, TOP)), max_size=12)
instants = st.integers(-10, TOP + 10)


def bitmap(given_pieces: list[tuple[int, int]]) -> set[int]:
    return {instant for start, end in given_pieces for instant in range(start, end)}


def made(given_pieces: list[tuple[int, int]]) -> Intervals:
    return intervals.union([start for start, _ in given_pieces], [end for _, end in given_pieces])


def instants_of(a: Intervals) -> set[int]:
    found = bitmap(list(zip(a.start.tolist(), a.end.tolist(), strict=True)))
    assert (a.end > a.start).all() and (a.start[1:] > a.end[:-1]).all(), "sorted, not empty, not touching"
    assert a.total == len(found)
    return found


@given(pieces)
def test_a_union_holds_every_instant_once(a):
    assert instants_of(made(a)) == bitmap(a)


@given(pieces, pieces)
def test_the_algebra_is_that_of_sets(a, b):
    left, right = bitmap(a), bitmap(b)
    assert instants_of(intervals.merge(made(a), made(b))) == left | right
    assert instants_of(intervals.intersect(made(a), made(b))) == left & right
    assert instants_of(intervals.subtract(made(a), made(b))) == left - right


@example([(0, 20)], 10, 5)
@example([(0, 20)], 5, 5)
@given(pieces, instants, instants)
def test_a_clip_is_what_lies_in_the_window(a, start, end):
    window = set(range(start, end))
    assert instants_of(intervals.clip(made(a), start, end)) == bitmap(a) & window


@given(pieces, st.lists(instants, max_size=8))
def test_totals_per_bin_count_the_instants_of_the_bin(a, edges):
    edges = sorted(edges)
    expected = [len(bitmap(a) & set(range(lo, hi))) for lo, hi in zip(edges[:-1], edges[1:], strict=True)]
    assert intervals.total_in(made(a), edges[:-1], edges[1:]).tolist() == expected
    assert intervals.covered_before(made(a), edges).tolist() == [len({i for i in bitmap(a) if i < e}) for e in edges]
    assert intervals.contains(made(a), edges).tolist() == [e in bitmap(a) for e in edges]


@given(pieces, pieces)
def test_equal_sets_have_equal_arrays(a, b):
    assert (made(a) == made(b)) == (bitmap(a) == bitmap(b))


def test_times_of_an_epoch_stay_exact():
    epoch = 1_700_000_000_000_000_000
    a = intervals.union([epoch, epoch + 3], [epoch + 1, epoch + 7])
    assert intervals.total_in(a, [epoch], [epoch + 5]).tolist() == [3]
    assert a.start.dtype == np.int64


@given(pieces, st.lists(instants, max_size=30))
def test_the_innermost_of_ranges_that_nest_or_cross_is_the_one_that_began_last(ranges, asked):
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    found = intervals.Nested(starts, ends).innermost(np.array(asked, np.int64)).tolist()
    for instant, place in zip(asked, found, strict=True):
        held = [(start, -end, at) for at, (start, end) in enumerate(ranges) if start <= instant < end]
        assert place == (max(held)[2] if held else -1)


@given(pieces, st.integers(1, 5))
def test_what_comes_some_at_a_time_in_order_of_start_covers_what_its_union_does(a, each):
    inner = np.array(sorted(a), np.int64).reshape(-1, 2)
    blocks = [inner[at : at + each] for at in range(0, len(inner), each)]
    assert intervals.covered((block[:, 0], block[:, 1]) for block in blocks) == made(a).total
