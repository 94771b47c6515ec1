"""A step replayed with other times, against a simulation that ticks nanosecond by nanosecond and knows what needs what.

In the simulation a GPU works through pieces of compute, some of which give a gradient away, and a network reduces one
bucket after the other; the update begins once all are reduced. What it shows with the times of 2 ranks is measured as a
recording is; what it shows with longer times is what the replay must tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiles.ground import intervals
from profiles.metrics import buckets
from profiles.metrics.collectives import Calls
from profiles.model.steps import StepRow
from profiles.predicting import replay


@dataclass(frozen=True)
class Piece:
    """Compute of so many ns, that begins when these buckets are reduced, and then gives one away or none."""

    ns: int
    needs: tuple[int, ...] = ()
    gives: int | None = None


@dataclass(frozen=True)
class Ran:
    """When compute ran, tick by tick, and when each bucket was reduced."""

    computing: list[bool]
    start: list[int]
    end: list[int]


def simulate(pieces: list[Piece], takes: list[int]) -> Ran:
    """A tick is 1 ns: the network does one of its tick, the GPU one of its own, if nothing is missing."""
    given_away: list[int] = []
    left = list(takes)
    start, end = [-1] * len(takes), [-1] * len(takes)
    computing: list[bool] = []
    todo = list(pieces)
    left_of_piece = todo[0].ns
    while todo or any(one < 0 for one in end):
        now = len(computing)
        ready = bool(todo) and all(0 <= end[one] <= now for one in todo[0].needs)
        at_work = next((one for one in given_away if end[one] < 0), None)
        if at_work is not None:
            start[at_work] = now if start[at_work] < 0 else start[at_work]
            left[at_work] -= 1
            if not left[at_work]:
                end[at_work] = now + 1
        computing.append(ready)
        if ready:
            left_of_piece -= 1
            if not left_of_piece:
                done = todo.pop(0)
                if done.gives is not None:
                    given_away.append(done.gives)
                left_of_piece = todo[0].ns if todo else 0
    return Ran(computing, start, end)


def recorded(ran: Ran) -> buckets.OneStep:
    """What the measures keep of it: a step of collectives and compute, without waiting."""
    start, end = np.array(ran.start, np.int64), np.array(ran.end, np.int64)
    order = np.argsort(end, kind="stable")
    start, end = start[order], end[order]
    none = np.zeros(len(start), np.int64)
    calls = Calls(start, end, none, none, end - start, none > 0, none + 2, none + 1_000, none == 0)
    ticks = np.flatnonzero(ran.computing)
    exposed = intervals.subtract(intervals.union(start, end), intervals.union(ticks, ticks + 1))
    row = StepRow(7, 0, len(ran.computing), {}, None, None, 1)
    found = buckets.one_step(calls, exposed, [row])
    assert found is not None
    return found


LENGTH = st.integers(1, 12)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[Piece], list[int], int]:
    """A backward pass that gives buckets away as it goes, an update that needs them all, the times of 2 ranks."""
    count = draw(st.integers(1, 6))
    backward = [Piece(draw(LENGTH), gives=number) for number in range(count)]
    forward = [Piece(draw(LENGTH))]
    rest = [Piece(draw(LENGTH), needs=tuple(range(count)))]
    return forward + backward + rest, [draw(LENGTH) for _ in range(count)], draw(st.integers(1, 5))


@given(steps())
def test_a_replay_with_longer_times_is_what_the_simulation_shows(made: tuple[list[Piece], list[int], int]) -> None:
    pieces, takes, times = made
    step = recorded(simulate(pieces, takes))
    longer = [ns * times for ns in takes]
    compute = sum(piece.ns for piece in pieces)
    assert replay.holds(step) and step.rest_ns == compute
    assert replay.exposed_ns(step, longer) == len(simulate(pieces, longer).computing) - compute


@given(steps(), st.data())
def test_what_waits_for_one_bucket_alone_waits_for_it_again(made, data) -> None:
    """Each part of the update needs its own bucket. A replay knows what the recording shows: whoever did not wait may
    have waited all the same, so that it is a lower bound, and exact where every part waited."""
    pieces, takes, times = made
    *earlier, _ = pieces
    update = [Piece(data.draw(LENGTH), needs=(number,)) for number in range(len(takes))]
    ran = simulate([*earlier, *update], takes)
    step = recorded(ran)
    longer = [ns * times for ns in takes]
    truth = len(simulate([*earlier, *update], longer).computing) - sum(piece.ns for piece in [*earlier, *update])
    assert replay.holds(step)
    assert replay.exposed_ns(step, longer) <= truth
    if all(bucket.needed_ns is not None for bucket in step.buckets):
        assert replay.exposed_ns(step, longer) == truth


def test_what_was_hidden_just_so_comes_out_once_it_takes_longer() -> None:
    """Compute of 10 ns hides a bucket of 9 whole; of 18 it hides no more: not the same share of it."""
    pieces = [Piece(2, gives=0), Piece(10), Piece(3, needs=(0,))]
    step = recorded(simulate(pieces, [9]))
    assert step.exposed_ns == 0 and step.buckets[0].needed_ns is None
    # Nothing is seen to wait for it; it must be done when the step ends, 3 ns later than it is needed here.
    assert replay.exposed_ns(step, [18]) == 5
