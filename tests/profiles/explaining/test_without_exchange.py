"""The ledger told by launches, against sums over every step of every rank as whole numbers."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from hypothesis import given
from hypothesis import strategies as st

from profiles.explaining.without_exchange import COMPUTE, EXCHANGE, INPUT, UNKNOWN, bounds, ledger
from profiles.runs.rank_records import RankRecord


def rank(number: int, steps: list[tuple[int, int]]) -> RankRecord:
    """Steps of (work, wait)."""
    step_ns, waits = [work + wait for work, wait in steps], [wait for _, wait in steps]
    return RankRecord(number, 2, number, "a", None, 0, sum(step_ns), 1, step_ns, waits)


def launches(ranks: int) -> st.SearchStrategy[list[list[RankRecord]]]:
    """1 to 3 launches, whose ranks take as many steps each."""

    def made(count: int) -> st.SearchStrategy[list[RankRecord]]:
        pairs = st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**9)), min_size=count, max_size=count)
        return st.tuples(*[pairs] * ranks).map(lambda all_of: [rank(k, one) for k, one in enumerate(all_of)])

    return st.lists(st.integers(1, 5).flatmap(made), min_size=1, max_size=3)


def mean(launch: list[RankRecord], common: int, *, wait: bool) -> int:
    """Of a step, in parts of `common` to the ns, by adding step by step."""
    total = count = 0
    for one in launch:
        for number in range(len(one.step_ns)):
            total += one.input_wait_ns[number] if wait else one.step_ns[number]
            count += 1
    assert common % count == 0
    return total * (common // count)


def usual(all_of: list[list[RankRecord]], common: int) -> list[RankRecord]:
    ordered = sorted(all_of, key=lambda launch: mean(launch, common, wait=False))
    return ordered[{1: 0, 2: 0, 3: 1}[len(ordered)]]


@given(launches(1), launches(2), launches(2), st.sampled_from([1, 2, 4]))
def test_wait_exchange_and_compute_add_up_to_what_a_step_takes_more(one, many, without, share):
    common = lcm(*range(1, 11)) * 4
    first, most, alone = (usual(each, common) for each in (one, many, without))
    found = ledger(one, many, without, scale=Fraction(1, share))
    step1, wait1 = mean(first, common, wait=False) // share, mean(first, common, wait=True) // share
    whole_n, wait_n = mean(most, common, wait=False), mean(most, common, wait=True)
    whole_0, wait_0 = mean(alone, common, wait=False), mean(alone, common, wait=True)
    parts = {name: part * common for name, part in found.loss_ns.items()}
    assert sum(parts.values()) == whole_n - step1
    assert parts[INPUT] == wait_n - wait1
    assert parts[EXCHANGE] == (whole_n - wait_n) - (whole_0 - wait_0)
    assert parts[COMPUTE] == (whole_0 - wait_0) - (step1 - wait1)
    assert parts[UNKNOWN] == 0
    known = bounds(one, many, without, scale=Fraction(1, share))
    assert all(low <= found.loss_ns[cause] <= high for cause, (low, high) in known.items())


@given(launches(1), launches(2))
def test_without_such_launches_all_but_the_wait_is_unknown(one, many):
    found = ledger(one, many, [])
    assert found.loss_ns[EXCHANGE] is None and found.loss_ns[COMPUTE] is None
    assert found.loss_ns[INPUT] + found.loss_ns[UNKNOWN] == found.step_after_ns - found.step_before_ns
    assert set(bounds(one, many, [])) == {INPUT}


@given(launches(1), launches(2), launches(2))
def test_whole_nanoseconds_add_up_as_the_fractions_do(one, many, without):
    exact = ledger(one, many, without)
    before, after, parts = exact.whole()
    assert after - before == sum(parts.values())
    assert abs(before - exact.step_before_ns) <= Fraction(1, 2) and abs(after - exact.step_after_ns) <= 1
    assert all(abs(parts[cause] - part) < 1 for cause, part in exact.loss_ns.items())


def test_the_bounds_are_of_any_launch_against_any_other():
    one = [[rank(0, [(100, 10)])], [rank(0, [(120, 0)])]]
    many = [[rank(0, [(300, 0)]), rank(1, [(320, 20)])]]
    without = [[rank(0, [(150, 0)]), rank(1, [(170, 0)])], [rank(0, [(180, 0)]), rank(1, [(180, 0)])]]
    assert bounds(one, many, without) == {INPUT: (0, 10), EXCHANGE: (130, 150), COMPUTE: (40, 80)}
