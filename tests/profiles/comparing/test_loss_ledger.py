"""The loss ledger against sums over the rows of the steps, as whole numbers over a common denominator."""

from __future__ import annotations

import copy
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.comparing.loss_ledger import losses
from profiles.ground.errors import RingscopeError
from profiles.model.measures import OWNERS, Measures
from tests.made.sample import sample


@cache
def made(gpus: int, steps: int = 6) -> Measures:
    """Measures of a made recording, made once for several tests: a test that changes them copies them first."""
    analysis, _ = sample(gpus=gpus, steps=steps, kernels_per_step=60, seed=gpus)
    return analysis.measures


def plain_step_ns(measures) -> Fraction:
    """A step's time by its start and end, on the mean over the GPUs."""
    per_gpu = [
        Fraction(sum(row.end_ns - row.start_ns for row in gpu.steps.rows), len(gpu.steps.rows)) for gpu in measures.gpus
    ]
    return sum(per_gpu, Fraction(0)) / len(per_gpu)


def plain_share(measures, owner: str) -> Fraction:
    total = Fraction(0)
    for gpu in measures.gpus:
        ns = 0
        for row in gpu.steps.rows:
            ns += row.ledger_ns[owner]
        total += Fraction(ns, len(gpu.steps.rows))
    return total / len(measures.gpus)


def test_what_a_step_takes_more_is_the_sum_of_what_its_owners_take_more():
    one, four = made(1, 7), made(4, 11)
    found = losses(one, four)
    assert found.step_before_ns == plain_step_ns(one)
    assert found.step_after_ns == plain_step_ns(four)
    assert sum(found.loss_ns.values()) == plain_step_ns(four) - plain_step_ns(one)
    for owner in OWNERS:
        assert found.loss_ns[owner] == plain_share(four, owner) - plain_share(one, owner)


def test_where_ranks_share_a_batch_each_is_held_against_its_share_of_the_step():
    one, two = made(1, 7), made(2, 5)
    found = losses(one, two, scale=Fraction(1, 2))
    assert found.step_before_ns == plain_step_ns(one) / 2
    for owner in OWNERS:
        assert found.loss_ns[owner] == plain_share(two, owner) - plain_share(one, owner) / 2
    before, after, whole = found.whole()
    assert after - before == sum(whole.values())
    assert all(abs(whole[owner] - part) < 1 for owner, part in found.loss_ns.items())


def test_a_set_loses_nothing_to_itself():
    measures = made(2)
    assert set(losses(measures, measures).loss_ns.values()) == {Fraction(0)}


def test_the_other_way_round_every_loss_is_a_gain():
    one, two = made(1), made(2)
    there, back = losses(one, two).loss_ns, losses(two, one).loss_ns
    assert all(there[owner] == -back[owner] for owner in OWNERS)


@settings(deadline=None, max_examples=30)
@given(st.sets(st.sampled_from([owner for owner in OWNERS if owner != "idle_unknown"]), min_size=1), st.booleans())
def test_an_owner_that_one_set_cannot_tell_joins_the_unknown_on_both_sides(hidden, only_one_gpu):
    one, two = made(1, 5), made(2, 5)
    blind = copy.deepcopy(two)
    for gpu in blind.gpus[: 1 if only_one_gpu else 2]:
        for row in gpu.steps.rows:
            for owner in hidden:
                row.ledger_ns["idle_unknown"] += row.ledger_ns[owner]
                row.ledger_ns[owner] = None
    found = losses(one, blind)
    seen = losses(one, two).loss_ns
    assert {owner for owner in OWNERS if found.loss_ns[owner] is None} == hidden
    assert found.step_after_ns == plain_step_ns(two)
    assert found.loss_ns["idle_unknown"] == seen["idle_unknown"] + sum(seen[owner] for owner in hidden)


def test_without_rows_the_window_tells_the_same_where_it_holds_the_measured_steps_alone():
    one, two = made(1), made(2)
    bare = copy.deepcopy(two)
    for gpu in bare.gpus:
        gpu.steps.rows = []
        gpu.steps.breaks = 0
    whole = [sum(value for value in gpu.ledger_ns.values()) == gpu.span_ns for gpu in two.gpus]
    assert all(whole)
    assert losses(one, bare).step_after_ns == losses(one, two).step_after_ns


def test_measures_that_mix_breaks_with_steps_are_refused_with_what_to_do():
    one = made(1)
    mixed = copy.deepcopy(one)
    mixed.gpus[0].steps.rows = []
    mixed.gpus[0].steps.breaks = 2
    with pytest.raises(RingscopeError, match="ringscope timeline PATH --per-step"):
        losses(one, mixed)


def test_recordings_without_steps_are_refused_with_what_to_do():
    one = made(1)
    refused = copy.deepcopy(one)
    refused.gpus[0].steps.rows = []
    refused.gpus[0].steps.count = 0
    refused.gpus[0].steps.refused = "no period"
    with pytest.raises(RingscopeError, match="no period.*marked"):
        losses(one, refused)
