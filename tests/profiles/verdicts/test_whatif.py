"""What-if against sums made here: alone, together, and never below the busiest resource."""

from __future__ import annotations

import pytest

from profiles.verdicts.whatif import each, span_without
from tests.made.hand import gpu

MS = 1_000_000


def test_each_owners_time_goes_alone_and_all_of_it_together() -> None:
    found = {one.owner: one for one in each(gpu(steps=1, ledger={"compute": 6 * MS, "h2d": MS, "idle_feed": 3 * MS}))}
    assert {name: one.span_ns for name, one in found.items()} == {"h2d": 9 * MS, "idle_feed": 7 * MS, "all": 6 * MS}
    assert found["all"].at_most_gain == pytest.approx(10 / 6 - 1)


def test_hidden_copies_that_take_longer_than_compute_bound_the_gain() -> None:
    copying = gpu(steps=1, ledger={"compute": 5 * MS, "h2d": 4 * MS, "idle_feed": MS}, busy={"h2d": 8 * MS})
    assert {one.owner: one.span_ns for one in each(copying)} == {"h2d": 8 * MS, "idle_feed": 9 * MS, "all": 8 * MS}


def test_a_resource_that_does_less_bounds_less_and_savings_are_cut_to_what_is_there() -> None:
    copying = gpu(steps=1, ledger={"compute": 5 * MS, "h2d": 5 * MS}, busy={"h2d": 8 * MS})
    assert span_without(copying, {"h2d": 99 * MS}, busy_saved_ns={"h2d": 6 * MS}) == 5 * MS


def test_a_gpu_that_only_computes_has_nothing_to_lose() -> None:
    assert each(gpu(ledger={"compute": 10 * MS})) == []


def test_work_that_a_change_removes_keeps_a_hundredth_of_its_time() -> None:
    """A program of nothing but short kernels is not a million times as fast with a larger batch."""
    short = gpu(steps=1, ledger={"compute": 5 * MS, "idle_launch": 5 * MS})
    everything = {"compute": 5 * MS, "idle_launch": 5 * MS}
    assert span_without(short, everything, busy_saved_ns={"compute": 5 * MS}) == 5 * MS // 100
    assert span_without(short, everything, busy_saved_ns={"compute": 4 * MS}) == MS
