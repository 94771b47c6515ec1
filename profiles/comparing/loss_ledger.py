"""The loss ledger: split the difference in step time between two sets of recordings (1 rank, N ranks) by owner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..measuring.step_ledger import REST, per_step
from ..model.measures import CLASSES, OWNERS, Measures

IDLE = "idle"  # of any cause
# Owners whose time is the same with and without a profiler: GPU work, and the turnaround between kernels.
UNDISTURBED = (*CLASSES, "idle_turnaround")


@dataclass(frozen=True, slots=True)
class LossLedger:
    """step_after_ns - step_before_ns == the sum of loss_ns, exactly: rounding is for the views.

    A step's time is the mean over a GPU's measured steps, averaged over the GPUs of the set. loss_ns: per owner
    (measures.OWNERS, or UNDISTURBED and IDLE) its increase per step; None where either set does not know the owner,
    whose time then counts as idle_unknown, or IDLE, on both sides.
    """

    step_before_ns: Fraction
    step_after_ns: Fraction
    loss_ns: dict[str, Fraction | None]

    def __post_init__(self) -> None:
        parts = sum((part for part in self.loss_ns.values() if part is not None), Fraction(0))
        if parts != self.step_after_ns - self.step_before_ns:
            raise AssertionError("the losses do not sum to the difference of the steps")

    def whole(self) -> tuple[int, int, dict[str, int | None]]:
        """(step before, step after, losses) in whole ns that still add up: each part is rounded down or up."""
        before, more = round(self.step_before_ns), round(self.step_after_ns - self.step_before_ns)
        known = {owner: part for owner, part in self.loss_ns.items() if part is not None}
        down: Mapping[str, int] = {owner: math.floor(part) for owner, part in known.items()}
        left = more - sum(down.values())  # ns to add again: at most one per part
        up = sorted(known, key=lambda owner: down[owner] - known[owner])[:left]  # the ones that lost most by rounding
        found = {owner: None if owner not in known else down[owner] + (owner in up) for owner in self.loss_ns}
        if sum(part for part in found.values() if part is not None) != more:
            raise AssertionError("the rounded losses do not sum to the difference of the rounded steps")
        return before, before + more, found


def losses(before: Measures, after: Measures, *, scale: Fraction = Fraction(1)) -> LossLedger:
    """Time of a step of `after` less `scale` times a step of `before`, by class and cause.

    scale: 1; with a fixed global batch, the samples in a rank's step after, divided by the samples before.

    Raises RingscopeError where a GPU has no measured steps, or only totals that hold breaks as well.
    """
    one, other, unknown = _both(before, after, scale)
    loss_ns = {owner: None if owner in unknown else other[owner] - one[owner] for owner in OWNERS}
    return LossLedger(sum(one.values(), Fraction(0)), sum(other.values(), Fraction(0)), loss_ns)


def losses_of_timed(
    before: Measures, after: Measures, steps_ns: tuple[Fraction, Fraction], *, scale: Fraction = Fraction(1)
) -> LossLedger | None:
    """As `losses`, for steps that took `steps_ns` without a profiler (the first already times `scale`): GPU work is as
    recorded, idle is the rest, because a profiler slows the host and the GPU waits for it.

    None if the rest is negative. Raises as `losses`.
    """
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
    """(ns per step by owner of `before`, of `after`, the owners that one of them does not know)."""
    one, other = per_step(before), per_step(after)
    one = {owner: None if share is None else scale * share for owner, share in one.items()}
    unknown = {owner for owner in OWNERS if one[owner] is None or other[owner] is None}
    return _known(one, unknown), _known(other, unknown), unknown


def _known(per_step: dict[str, Fraction | None], unknown: set[str]) -> dict[str, Fraction]:
    """ns of the owners that both sets know; the time of the others is added to REST."""
    known = {owner: share for owner, share in per_step.items() if owner not in unknown and share is not None}
    moved = sum((share for owner, share in per_step.items() if owner in unknown and share is not None), Fraction(0))
    return known | {REST: known.get(REST, Fraction(0)) + moved}
