"""Search for the largest batch that fits into memory by real launches: choose the next batch from the earlier tries.

The choice is a pure function of the tries, so that a stopped search can be resumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIRMATIONS = 2  # number of launches in which the answer must fit, since a single launch may fit by luck
NEAR = 0.1  # if the prediction failed, the next try is this share above the largest fit or below the smallest failure
LEAST_PART = 8  # a predicted try is at least 1 / 8 of the open interval away from both ends


@dataclass(frozen=True, slots=True)
class Try:
    """One launch: its batch per rank, and the largest rank's peak memory in bytes; None if the launch failed.

    failure: the error of a launch that failed for another reason than memory; empty otherwise."""

    batch: int
    memory_bytes: int | None
    failure: str = ""

    @property
    def fits(self) -> bool:
        return self.memory_bytes is not None

    @property
    def out_of_memory(self) -> bool:
        return not self.fits and not self.failure


@dataclass(frozen=True, slots=True)
class Plan:
    """A search's settings: try multiples of `multiple_of` up to `most`, beginning at `start`; end when the largest
    batch is known to a share `within`.

    capacity_bytes: memory that a rank may take, which only makes the search shorter; None if unknown."""

    start: int
    most: int
    within: float = 0.02
    multiple_of: int = 1
    capacity_bytes: int | None = None

    def lattice(self, batch: float) -> int:
        """The largest multiple of `multiple_of` that does not exceed `batch`; at least `multiple_of`."""
        return max(self.multiple_of, int(batch) // self.multiple_of * self.multiple_of)

    def tolerance(self, low: int) -> int:
        """The distance in samples at which the search ends: between `low` and the smallest batch that does not fit."""
        return max(self.multiple_of, int(low * self.within))


@dataclass(frozen=True, slots=True)
class Line:
    """Memory as a linear function of the batch: fixed_bytes + batch x per_sample_bytes."""

    fixed_bytes: float
    per_sample_bytes: float

    def bytes_of(self, batch: float) -> float:
        return self.fixed_bytes + batch * self.per_sample_bytes

    def largest(self, capacity_bytes: float) -> int | None:
        """The largest batch that takes at most `capacity_bytes`; None if memory does not grow with the batch."""
        if self.per_sample_bytes <= 0:
            return None
        return max(0, math.floor((capacity_bytes - self.fixed_bytes) / self.per_sample_bytes))


def bracket(tries: Sequence[Try]) -> tuple[int, int | None]:
    """(largest batch that fits below all failed batches, or 0; smallest failed batch, or None).

    A batch that fitted in one launch and failed in another counts as failed."""
    high = min((one.batch for one in tries if not one.fits), default=None)
    low = max((one.batch for one in tries if one.fits and (high is None or one.batch < high)), default=0)
    return low, high


def is_monotone(tries: Sequence[Try]) -> bool:
    """True if all batches that fitted are smaller than all batches that failed."""
    _, high = bracket(tries)
    return high is None or not any(one.fits and one.batch >= high for one in tries)


def line(tries: Sequence[Try]) -> Line | None:
    """The line through the two smallest batches that fit; None if fewer than two fit."""
    points = {one.batch: one.memory_bytes for one in tries if one.memory_bytes is not None}
    if len(points) < 2:
        return None
    one, two = sorted(points)[:2]
    slope = (points[two] - points[one]) / (two - one)
    return Line(points[one] - slope * one, slope)


def long_line(tries: Sequence[Try]) -> Line | None:
    """The line through the smallest and the largest batch that fit: with distant points noise matters less."""
    fitting = sorted((one for one in tries if one.fits), key=lambda one: one.batch)
    return line([fitting[0], fitting[-1]]) if fitting else None


def next_batch(tries: Sequence[Try], plan: Plan) -> int | None:
    """The batch to try next; None if the search is over: `bracket` gives the answer, which has fitted twice, or 0."""
    low, high = bracket(tries)
    most = plan.lattice(plan.most)
    if not tries:
        return min(plan.lattice(plan.start), most)
    if low and (low >= most or (high is not None and high - low <= plan.tolerance(low))):
        return None if sum(one.batch == low for one in tries) >= CONFIRMATIONS else low
    guess = _predicted(tries, plan)
    if high is None:
        return _farther(low, guess, plan, most)
    if high <= plan.multiple_of:
        return None
    return _between(low, high, guess, tries, plan)


def _predicted(tries: Sequence[Try], plan: Plan) -> int | None:
    """The largest batch by the line through the tries and the capacity; None if the line or the capacity is unknown."""
    found = long_line(tries)
    if found is None or plan.capacity_bytes is None:
        return None
    return found.largest(plan.capacity_bytes)


def _farther(low: int, guess: int | None, plan: Plan, most: int) -> int:
    """The next batch while none has failed: the prediction; a little more once the prediction has been reached; twice
    the largest batch that fits if there is no prediction."""
    if guess is None:
        wanted: float = 2 * low
    elif plan.lattice(guess) > low:
        wanted = guess
    elif low < guess * (1 + plan.within):  # the predicted batch has fitted: see if the next larger batch fails
        wanted = low + plan.tolerance(low)
    else:
        wanted = low * (1 + NEAR) if low < guess * (1 + 2 * NEAR) else 2 * low
    return min(most, max(plan.lattice(wanted), low + plan.multiple_of))


def _between(low: int, high: int, guess: int | None, tries: Sequence[Try], plan: Plan) -> int:
    """The next batch between `low` and `high`: the prediction if it lies inside, else half-way or just below the only
    failure."""
    wanted: float = (low + high) / 2
    part = (high - low) / LEAST_PART
    if guess is not None and low < guess < high:
        wanted = min(max(guess, low + part), high - part)
    elif guess is not None and low and len({one.batch for one in tries if not one.fits}) == 1:
        wanted = max(wanted, high * (1 - NEAR))
    return min(max(plan.lattice(wanted), low + plan.multiple_of), high - plan.multiple_of)


def left(tries: Sequence[Try], plan: Plan) -> int:
    """Estimate how many launches the search still needs."""
    low, high = bracket(tries)
    if next_batch(tries, plan) is None:
        return 0
    if high is None:
        return 4 if plan.capacity_bytes else 8
    halves = math.ceil(math.log2(max(1, (high - low) / plan.tolerance(low))))
    return halves + CONFIRMATIONS - 1
