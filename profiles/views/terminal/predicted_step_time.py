"""A prediction in words: a line for each number of ranks, then what it is based on."""

from __future__ import annotations

from ...ground import numbers
from ...predicting.step_time import Basis, Outlook, Prediction
from .recording import doubted


def text(outlook: Outlook) -> str:
    lines = [*(_line(outlook, each) for each in outlook.predictions), _basis(outlook.basis)]
    lines += map(doubted, outlook.doubts)
    return "\n".join(lines)


def _basis(basis: Basis) -> str:
    unhidden, straggling, varying = (
        numbers.duration(ns) for ns in (basis.unhidden_ns, basis.straggling_ns, basis.varying_ns)
    )
    how = {
        "replayed": "predicted by replaying a recorded step with longer all-reduces",
        "share": "predicted with the share of the all-reduces that is hidden on 2 ranks, because no step could be "
        "replayed",
    }[basis.overlap]
    return (
        f"on 2 ranks, per step: {unhidden} of all-reduces that compute does not hide; {varying} of waiting because "
        f"steps vary (grows with ranks) and {straggling} of waiting for one slow rank (does not grow); {how}"
    )


def _line(outlook: Outlook, each: Prediction) -> str:
    doubted = " in doubt:" if each.efficiency > 1 else ""
    line = (
        f"{each.ranks} ranks: {numbers.duration(each.step_ns)} per step "
        f"({numbers.duration(each.low_ns)} to {numbers.duration(each.high_ns)}), efficiency{doubted} "
        f"{numbers.share(each.efficiency)} ({numbers.share(each.efficiency_low)} to "
        f"{numbers.share(each.efficiency_high)})"
    )
    holds = outlook.holds(each)
    if outlook.measured is None or holds is None:
        return line
    where = "inside" if holds else "outside"
    return f"{line}; measured {numbers.duration(outlook.measured.step_ns)}, {where} the interval"
