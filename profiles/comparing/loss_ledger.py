"""The loss ledger: where the time of a step went that one set of recordings has more than another (1 rank, N ranks)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..measuring.step_ledger import REST, per_step
from ..model.measures import CLASSES, OWNERS, Measures

IDLE = "idle"  # of any cause
# GPU work, and pauses between kernels that wait for it, take as long with a profiler as without.
UNDISTURBED = (*CLASSES, "idle_turnaround")


@dataclass(frozen=True, slots=True)
class LossLedger:
    """step_after_ns - step_before_ns == the sum of loss_ns, exactly: rounding is for the views.

    A step's time is the total over the measured steps of a GPU by their count, averaged over the GPUs of the set.
    loss_ns: per owner (measures.OWNERS, or UNDISTURBED and IDLE) what it takes more of a step; None where either set
    cannot tell, its time then is in idle_unknown, or IDLE, on both sides.
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
        left = more - sum(down.values())  # 0 up to as many as there are parts
        up = sorted(known, key=lambda owner: down[owner] - known[owner])[:left]  # the ones that lost most by rounding
        found = {owner: None if owner not in known else down[owner] + (owner in up) for owner in self.loss_ns}
        if sum(part for part in found.values() if part is not None) != more:
            raise AssertionError("the rounded losses do not sum to the difference of the rounded steps")
        return before, before + more, found


def losses(before: Measures, after: Measures, *, scale: Fraction = Fraction(1)) -> LossLedger:
    """Losses of a step of `after` over one of `before` times `scale`, by class and cause.

    scale: 1, but with a batch that is held over all ranks the samples of a rank's step after, by those before.

    Raises RingscopeError where a GPU has no measured steps, or only totals that hold breaks as well.
    """
    one, other, unknown = _both(before, after, scale)
    loss_ns = {owner: None if owner in unknown else other[owner] - one[owner] for owner in OWNERS}
    return LossLedger(sum(one.values(), Fraction(0)), sum(other.values(), Fraction(0)), loss_ns)


def losses_of_timed(
    before: Measures, after: Measures, steps_ns: tuple[Fraction, Fraction], *, scale: Fraction = Fraction(1)
) -> LossLedger | None:
    """The same for steps that took `steps_ns` when nobody recorded them (that before times `scale` already): what the
    GPU did as recorded, and as idle what this leaves. A profiler slows the host, and the GPU waits for it.

    None where that is less than nothing. Raises as `losses`.
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
    """ns of a step per owner that both sets know, of each, and the owners that one of them cannot tell."""
    one, other = per_step(before), per_step(after)
    one = {owner: None if share is None else scale * share for owner, share in one.items()}
    unknown = {owner for owner in OWNERS if one[owner] is None or other[owner] is None}
    return _known(one, unknown), _known(other, unknown), unknown


def _known(per_step: dict[str, Fraction | None], unknown: set[str]) -> dict[str, Fraction]:
    """The owners both sets know; the time of the others joins what has no known cause."""
    known = {owner: share for owner, share in per_step.items() if owner not in unknown and share is not None}
    moved = sum((share for owner, share in per_step.items() if owner in unknown and share is not None), Fraction(0))
    return known | {REST: known.get(REST, Fraction(0)) + moved}
