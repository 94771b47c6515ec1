"""Ranks on one clock, on recordings whose clocks the test set apart by a known amount."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from profiles.gpus.clock import Clock, aligned, nearest
from profiles.gpus.clock import ends as ends_of_recording
from profiles.model.timeline import Timeline
from tests.made.build import Build
from tests.recordings import SHARED, needs_shared
from tests.recordings import timeline as timeline_of
from tests.tiers import few

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
UTC = 1_700_000_000_000_000_000


def align(timelines: list[Timeline]) -> Clock:
    return aligned([ends_of_recording(one) for one in timelines])


def ends_of(count: int, seed: int = 0) -> list[int]:
    """When collectives end: steps of some 190 ms, never twice the same."""
    chance = random.Random(seed)
    now, found = 5_000_000_000, []
    for _ in range(count):
        now += chance.randint(185_000_000, 195_000_000)
        found.append(now)
    return found


def rank(
    number: int,
    ends: list[int],
    *,
    starts_at: int,
    utc_error: int | None = 0,
    noise: int = 0,
    host: str | None = None,
) -> Timeline:
    """A recording whose own clock starts at `starts_at` of the true one; utc_error None: it does not know UTC."""
    chance = random.Random(100 + number)
    utc = None if utc_error is None else UTC + starts_at + utc_error
    made = Build(pid=10 + number, device=number, rank=number, path=f"rank{number}.sqlite", origin_utc_ns=utc, host=host)
    for end in ends:
        own = end - starts_at + chance.randint(-noise, noise)
        made.kernel(own - chance.randint(300_000, 5_000_000), own, ALL_REDUCE)
        made.kernel(own + 10, own + 20)
    return made.timeline()


def test_starts_in_utc_put_ranks_on_one_clock():
    ends = ends_of(12)
    clock = align([rank(0, ends, starts_at=0), rank(1, ends, starts_at=-7_980_288, noise=2_000)])
    assert clock.shift_ns == (0, -7_980_288)
    assert clock.method == "utc"
    assert 0 < clock.residual_ns <= 2_000


def test_recordings_of_two_runs_are_not_brought_together() -> None:
    first, second = rank(0, ends_of(12), starts_at=0), rank(1, ends_of(12, seed=1), starts_at=0, utc_error=10**10)
    clock = align([first, second])
    assert (clock.shift_ns, clock.method, clock.residual_ns) == ((0, 10**10), "utc", None)


@pytest.mark.parametrize(
    ("hosts", "later_s", "together"),
    [
        (("a", "a"), 34, False),  # the collectives take 2.1 s, so 31.9 s lie between them
        (("a", "a"), 32, True),  # 29.9 s: the clock may have been set in between
        (("a", "a"), -34, False),
        (("a", "a"), 86_400, False),
        (("a", "b"), 86_400, True),  # clocks of two hosts may be a day apart
        ((None, None), 86_400, True),
        ((None, "a"), 86_400, True),
    ],
)
def test_one_host_takes_no_part_in_a_collective_half_a_minute_after_its_end(
    hosts: tuple[str | None, str | None], later_s: int, together: bool
) -> None:
    """Two runs of one model, whose steps happen to take equally long."""
    ends, later_ns = ends_of(12), later_s * 10**9
    clock = align(
        [rank(0, ends, starts_at=0, host=hosts[0]), rank(1, ends, starts_at=0, utc_error=later_ns, host=hosts[1])]
    )
    assert clock.methods[1] == ("collectives" if together else "utc")
    assert clock.shift_ns[1] == (0 if together else later_ns)
    assert clock.residual_ns == (0 if together else None)


def test_a_wrong_utc_is_found_out_by_the_collectives_and_replaced():
    ends = ends_of(12)
    clock = align([rank(0, ends, starts_at=0), rank(1, ends, starts_at=3_000_000, utc_error=5_325_680_000)])
    assert clock.shift_ns == (0, 3_000_000)
    assert clock.methods == ("reference", "collectives")
    assert clock.residual_ns == 0


@pytest.mark.parametrize("error", [99_000, 101_000])
def test_utc_holds_up_to_a_hundred_microseconds(error):
    ends = ends_of(12)
    clock = align([rank(0, ends, starts_at=0), rank(1, ends, starts_at=0, utc_error=error)])
    assert clock.method == ("utc" if error <= 100_000 else "collectives")
    assert clock.shift_ns[1] == (error if error <= 100_000 else 0)
    assert clock.residual_ns == (error if error <= 100_000 else 0)


@pytest.mark.parametrize("missed", [0, 1, 5])
def test_without_utc_a_rank_that_began_steps_later_still_finds_its_collectives(missed):
    ends = ends_of(30)
    clock = align([rank(0, ends, starts_at=0), rank(1, ends[missed:], starts_at=44, utc_error=None, noise=3_000)])
    assert clock.method == "collectives"
    assert abs(clock.shift_ns[1] - 44) <= 3_000
    assert clock.residual_ns <= 6_000


def test_without_utc_and_collectives_there_is_no_common_clock():
    clock = align([rank(0, [], starts_at=0), rank(1, [], starts_at=9, utc_error=None)])
    assert clock.method == "none"
    assert clock.residual_ns is None


def test_utc_that_nothing_checks_is_kept_with_its_residual_unknown():
    clock = align([rank(0, [], starts_at=0), rank(1, [], starts_at=9)])
    assert clock.shift_ns == (0, 9)
    assert clock.method == "utc"
    assert clock.residual_ns is None


def test_the_worst_of_many_ranks_gives_the_residual():
    ends = ends_of(40)
    alone = [rank(0, ends, starts_at=0), rank(1, ends, starts_at=7, noise=500)]
    worse = [*alone, rank(2, ends, starts_at=5, noise=20_000)]
    assert align(worse).residual_ns > align(alone).residual_ns > 0
    assert align(worse).residual_ns <= 20_000


def test_one_recording_is_its_own_clock():
    clock = align([rank(0, ends_of(3), starts_at=0)])
    assert clock.shift_ns == (0,)
    assert clock.method == "reference"


def test_different_collectives_are_not_taken_for_common_ones():
    ends = ends_of(12)
    other = rank(1, ends_of(12, seed=9), starts_at=0, utc_error=None)
    other = replace(other, kernels=other.kernels.assign(name=other.kernels["name"].cat.rename_categories(_broadcast)))
    assert align([rank(0, ends, starts_at=0), other]).method == "none"


def _broadcast(name: str) -> str:
    return name.replace("AllReduce", "Broadcast")


@pytest.mark.parametrize("seed", range(20))
def test_nearest_pairs_are_those_of_a_plain_search(seed):
    import numpy as np

    chance = random.Random(seed)
    a = sorted(chance.sample(range(300), chance.randint(1, 30)))
    b = sorted(chance.sample(range(300), chance.randint(1, 30)))
    mine, theirs = nearest(np.array(a), np.array(b))

    def closest(value: int, among: list[int]) -> int:
        return min(range(len(among)), key=lambda place: (abs(among[place] - value), place))

    expected = [(i, closest(value, b)) for i, value in enumerate(a) if closest(b[closest(value, b)], a) == i]
    assert list(zip(mine.tolist(), theirs.tolist(), strict=True)) == expected


def consensus(reference: list[int], own: list[int]) -> int:
    """The shift at which most ends of the two lie within 100 µs of each other, of all that any pair of ends gives."""

    def agreeing(shift: int) -> tuple[int, int]:
        apart = [min(abs(end - other - shift) for end in reference) for other in own]
        near = [ns for ns in apart if ns <= 100_000]
        return len(near), -sum(near)

    return max((end - other for end in reference for other in own), key=agreeing)


@pytest.mark.parametrize(
    ("seed", "error_ms"), few(product(range(6), [-9_000, -2_500, -700, -40, 40, 700, 2_500, 9_000]), 5)
)
def test_however_wrong_utc_is_the_collectives_tell_what_a_plain_search_finds(seed: int, error_ms: int) -> None:
    """Ranks that saw other parts of a training, whose steps differ by up to 2 % or 1 ms, with two collectives each."""
    chance = random.Random(seed)
    step, apart = chance.choice([(20_000_000, 400_000), (190_000_000, 4_000_000), (5_000_000, 1_000_000)])
    now, ends = 5_000_000_000, []
    for _ in range(24):
        now += step + chance.randint(-apart, apart)
        ends += [now - step // 3, now]
    first, last = 2 * chance.randint(0, 6), 48 - 2 * chance.randint(0, 6)
    theirs = 2 * chance.randint(0, 6)
    starts_at = chance.randint(-(10**9), 10**9)
    ours = rank(0, ends[theirs:], starts_at=0)
    own = rank(1, ends[first:last], starts_at=starts_at, utc_error=error_ms * 1_000_000 + 333_333, noise=3_000)
    found = align([ours, own])
    assert found.method == "collectives" and abs(found.shift_ns[1] - starts_at) <= 3_000
    times = [table["end_ns"][::2].tolist() for table in (ours.kernels, own.kernels)]
    assert abs(found.shift_ns[1] - consensus(*times)) <= 6_000


def test_of_steps_that_take_equally_long_the_lag_with_most_pairs_counts_whatever_utc_says() -> None:
    ends = [10**9 + 20_000_000 * number for number in range(40)]
    for seconds in (-3, -1, 1, 3):
        own = rank(1, ends, starts_at=77, utc_error=seconds * 10**9 + 7_000_000, noise=2_000)
        assert abs(align([rank(0, ends, starts_at=0), own]).shift_ns[1] - 77) <= 2_000


def test_recordings_of_other_steps_share_no_collective_and_utc_stands() -> None:
    ends = [10**9 + 20_000_000 * number for number in range(40)]
    parts = []
    for number, steps in enumerate((range(20), range(20, 40))):
        made = Build(pid=number, rank=number, path=f"rank{number}.sqlite", origin_utc_ns=UTC)
        for step in steps:
            made.mark(f"step {step}", ends[step] - 20_000_000, ends[step])
            made.kernel(ends[step] - 300_000, ends[step], ALL_REDUCE)
        parts.append(made.timeline())
    clock = align(parts)
    assert (clock.shift_ns, clock.method, clock.residual_ns) == ((0, 0), "utc", None)


@needs_shared
@pytest.mark.parametrize("name", ["good", "slow_rank", "big_dense"])
def test_real_ranks_are_put_on_one_clock_though_utc_is_seconds_off(name: str) -> None:
    """UTC is good to some µs there: what the collectives tell must be the same."""
    one, other = (
        ends_of_recording(timeline_of(SHARED / "third" / "planted" / f"{name}.rank{rank}.sqlite.xz")) for rank in (0, 1)
    )
    true = aligned([one, other])
    assert true.method == "utc" and (true.residual_ns or 0) < 10_000
    for seconds in (-5.0, -1.5, -0.4, -0.02, 0.02, 0.4, 1.5, 5.0):
        wrong = replace(other, origin_utc_ns=(other.origin_utc_ns or 0) + round(seconds * 1e9))
        found = aligned([one, wrong])
        assert found.method == "collectives" and abs(found.shift_ns[1] - true.shift_ns[1]) < 10_000
