"""The loss ledger: split the difference in step time between two sets of recordings (1 rank, N ranks) by owner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..measuring.step_ledger import REST, per_step
from ..model.measures import CLASSES, OWNERS, Measures

IDLE = "idle"  # idle time of all causes together
# Owners whose time a profiler does not change: GPU work, and the turnaround between kernels.
UNDISTURBED = (*CLASSES, "idle_turnaround")


@dataclass(frozen=True, slots=True)
class LossLedger:
    """The difference of two step times by owner: step_after_ns - step_before_ns == the sum of loss_ns, exactly.

    A step's time is the mean over a GPU's measured steps, averaged over the GPUs of the set. loss_ns: the increase per
    step of each owner (measures.OWNERS, or UNDISTURBED and IDLE); None if the owner is unknown in either set: then its
    time counts as idle_unknown, or IDLE, in both."""

    step_before_ns: Fraction
    step_after_ns: Fraction
    loss_ns: dict[str, Fraction | None]

    def __post_init__(self) -> None:
        parts = sum((part for part in self.loss_ns.values() if part is not None), Fraction(0))
        if parts != self.step_after_ns - self.step_before_ns:
            raise AssertionError("the losses do not sum to the difference of the steps")

    def whole(self) -> tuple[int, int, dict[str, int | None]]:
        """(step before, step after, losses), each rounded down or up to whole ns so that they still add up."""
        before, more = round(self.step_before_ns), round(self.step_after_ns - self.step_before_ns)
        known = {owner: part for owner, part in self.loss_ns.items() if part is not None}
        down: Mapping[str, int] = {owner: math.floor(part) for owner, part in known.items()}
        left = more - sum(down.values())  # number of ns that rounding down lost, at most one per part
        took_most = sorted(known, key=lambda owner: down[owner] - known[owner])  # by rounding down, most first
        up = took_most[:left]
        found = {owner: None if owner not in known else down[owner] + (owner in up) for owner in self.loss_ns}
        if sum(part for part in found.values() if part is not None) != more:
            raise AssertionError("the rounded losses do not sum to the difference of the rounded steps")
        return before, before + more, found


def losses(before: Measures, after: Measures, *, scale: Fraction = Fraction(1)) -> LossLedger:
    """The time of a step of `after` minus `scale` times a step of `before`, by owner.

    scale: 1 or, with a fixed global batch, the samples in a rank's step after, divided by the samples before. Raises
    RingscopeError if a GPU has no measured steps, or only totals that include breaks."""
    one, other, unknown = _both(before, after, scale)
    loss_ns = {owner: None if owner in unknown else other[owner] - one[owner] for owner in OWNERS}
    return LossLedger(sum(one.values(), Fraction(0)), sum(other.values(), Fraction(0)), loss_ns)


def losses_of_timed(
    before: Measures, after: Measures, steps_ns: tuple[Fraction, Fraction], *, scale: Fraction = Fraction(1)
) -> LossLedger | None:
    """Like `losses`, but for steps that took `steps_ns` without a profiler (the first already multiplied by `scale`):
    GPU work is that of the recordings, and idle time is the rest, because a profiler slows the host, for which the GPU
    waits.

    None if the rest is negative."""
    one, other, unknown = _both(before, after, scale)
    did = [{owner: ledger[owner] for owner in UNDISTURBED if owner not in unknown} for ledger in (one, other)]
    idle = [step - sum(each.values(), Fraction(0)) for each, step in zip(did, steps_ns, strict=True)]
    if min(idle) < 0:
        return None
    loss_ns: dict[str, Fraction | None] = {
        owner: None if owner in unknown else did[1][owner] - did[0][owner] for owner in UNDISTURBED
    }
    return LossLedger(*steps_ns, loss_ns | {IDLE: idle[1] - idle[0]})


def _both(
    before: Measures, after: Measures, scale: Fraction
) -> tuple[dict[str, Fraction], dict[str, Fraction], set[str]]:
    """(ns per step by owner of `before`, the same of `after`, owners that are unknown in one of them)."""
    one, other = per_step(before), per_step(after)
    one = {owner: None if share is None else scale * share for owner, share in one.items()}
    unknown = {owner for owner in OWNERS if one[owner] is None or other[owner] is None}
    return _known(one, unknown), _known(other, unknown), unknown


def _known(per_step: dict[str, Fraction | None], unknown: set[str]) -> dict[str, Fraction]:
    """ns by owner for the owners that both sets know; the time of all other owners is added to REST."""
    known = {owner: share for owner, share in per_step.items() if owner not in unknown and share is not None}
    moved = sum((share for owner, share in per_step.items() if owner in unknown and share is not None), Fraction(0))
    return known | {REST: known.get(REST, Fraction(0)) + moved}
