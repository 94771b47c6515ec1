"""The largest batch that fits, searched by real runs: which batch to try next, given what became of those before.

A pure function of the tries, so that a search that was stopped goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIRMATIONS = 2  # launches of the answer: one may have been lucky
NEAR = 0.1  # where the prediction is missed, the next try is so far from it, once or twice
LEAST_PART = 8  # of what is left, a predicted try takes at least one such part away


@dataclass(frozen=True, slots=True)
class Try:
    """One launch: its batch per rank, and the most memory that a rank took; None where it did not fit.

    failure: the error of one that failed without a word of memory.
    """

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
    """A search's plan: multiples of `multiple_of` up to `most`, from `start` on, known to a share `within`.

    capacity_bytes: what a rank may take; None where nobody says. It only makes the search shorter.
    """

    start: int
    most: int
    within: float = 0.02
    multiple_of: int = 1
    capacity_bytes: int | None = None

    def lattice(self, batch: float) -> int:
        """The largest multiple that is no larger, at least one."""
        return max(self.multiple_of, int(batch) // self.multiple_of * self.multiple_of)

    def tolerance(self, low: int) -> int:
        """The distance to the next batch that does not fit, at which the search ends."""
        return max(self.multiple_of, int(low * self.within))


@dataclass(frozen=True, slots=True)
class Line:
    """Memory over batch: fixed_bytes + batch x per_sample_bytes."""

    fixed_bytes: float
    per_sample_bytes: float

    def bytes_of(self, batch: float) -> float:
        return self.fixed_bytes + batch * self.per_sample_bytes

    def largest(self, capacity_bytes: float) -> int | None:
        """The largest batch that takes no more; None where memory does not grow with the batch."""
        if self.per_sample_bytes <= 0:
            return None
        return max(0, math.floor((capacity_bytes - self.fixed_bytes) / self.per_sample_bytes))


def bracket(tries: Sequence[Try]) -> tuple[int, int | None]:
    """(the largest batch that fits below all that do not, the smallest that does not); 0 and None where there is none.

    A batch that fitted once and once did not does not fit.
    """
    high = min((one.batch for one in tries if not one.fits), default=None)
    low = max((one.batch for one in tries if one.fits and (high is None or one.batch < high)), default=0)
    return low, high


def is_monotone(tries: Sequence[Try]) -> bool:
    """True if nothing fitted that is as large as what did not."""
    _, high = bracket(tries)
    return high is None or not any(one.fits and one.batch >= high for one in tries)


def line(tries: Sequence[Try]) -> Line | None:
    """Through the two smallest batches that fit; None with fewer."""
    points = {one.batch: one.memory_bytes for one in tries if one.memory_bytes is not None}
    if len(points) < 2:
        return None
    one, two = sorted(points)[:2]
    slope = (points[two] - points[one]) / (two - one)
    return Line(points[one] - slope * one, slope)


def long_line(tries: Sequence[Try]) -> Line | None:
    """Through the smallest and the largest batch that fit: the farther apart, the less their noise counts."""
    fitting = sorted((one for one in tries if one.fits), key=lambda one: one.batch)
    return line([fitting[0], fitting[-1]]) if fitting else None


def next_batch(tries: Sequence[Try], plan: Plan) -> int | None:
    """The batch to try next; None at the end: the answer is `bracket`'s, and has fitted twice (or nothing fits)."""
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
    """The largest batch, as far as is known now."""
    found = long_line(tries)
    if found is None or plan.capacity_bytes is None:
        return None
    return found.largest(plan.capacity_bytes)


def _farther(low: int, guess: int | None, plan: Plan, most: int) -> int:
    """Nothing has failed yet."""
    if guess is None:
        wanted: float = 2 * low
    elif plan.lattice(guess) > low:
        wanted = guess
    elif low < guess * (1 + plan.within):  # the prediction holds so far: is it the end?
        wanted = low + plan.tolerance(low)
    else:
        wanted = low * (1 + NEAR) if low < guess * (1 + 2 * NEAR) else 2 * low
    return min(most, max(plan.lattice(wanted), low + plan.multiple_of))


def _between(low: int, high: int, guess: int | None, tries: Sequence[Try], plan: Plan) -> int:
    """Half-way, or as predicted if that is well inside, or a little below the first that failed."""
    wanted: float = (low + high) / 2
    part = (high - low) / LEAST_PART
    if guess is not None and low < guess < high:
        wanted = min(max(guess, low + part), high - part)
    elif guess is not None and low and len({one.batch for one in tries if not one.fits}) == 1:
        wanted = max(wanted, high * (1 - NEAR))
    return min(max(plan.lattice(wanted), low + plan.multiple_of), high - plan.multiple_of)


def left(tries: Sequence[Try], plan: Plan) -> int:
    """About how many launches are still to come."""
    low, high = bracket(tries)
    if next_batch(tries, plan) is None:
        return 0
    if high is None:
        return 4 if plan.capacity_bytes else 8
    halves = math.ceil(math.log2(max(1, (high - low) / plan.tolerance(low))))
    return halves + CONFIRMATIONS - 1
