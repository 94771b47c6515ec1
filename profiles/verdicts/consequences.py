"""Sort causes before consequences: a finding that delays one rank comes first, and findings on the other ranks' waiting
become its consequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..ground import numbers
from ..model.findings import OF_RANKS, Consequence, Finding
from .case import REPORT_SHARE, Case
from .order import WITH_WAITING, without, worth

# Findings that only report waiting for a late rank. They do not say why the rank is late, so none can be the cause.
_NO_CAUSE: Final = WITH_WAITING | {
    "gradients-wait-for-ranks",
    "ranks-wait-by-turns",
    "launched-work-waits",
    "straggler",
}
# Findings whose whole price is waiting for the late rank.
_ALL_WAITING: Final = frozenset({"gradients-wait-for-ranks", "straggler"})
_OF_HOST: Final = frozenset({"launch-bound", "python-in-the-loop", "host-synchronises", "loss-fetched-every-step"})
_EXPLAINS: Final = 0.5  # A cause must cost the late rank this share of the other ranks' waiting.
_ALIKE: Final = 1.02  # Prices whose ratio is below this count as equal.


def causes_first(found: Sequence[Finding], cases: Sequence[Case]) -> list[Finding]:
    """Sort the finding that makes other ranks wait before the findings that are priced by this waiting.

    Findings that are worth more even without the waiting stay before it. Findings that are worth nothing without the
    waiting are folded into its consequences.
    """
    waits = {case.index: case.gpu.waiting_for_ranks_ns for case in cases}
    late = _late(found, cases, waits)
    waiting = sorted((case for case in cases if case.index not in late), key=lambda case: -waits[case.index])
    if not late or not waiting or waits[waiting[0].index] < REPORT_SHARE * waiting[0].gpu.span_ns:
        return list(found)
    cause = _cause(found, [case for case in cases if case.index in late], waiting[0])
    if cause is None:
        return list(found)
    # Prices of findings on collectives contain only the waiting within collectives, not the waiting before them.
    inside = {case.index: (waits[case.index] - case.ns("idle_peers")) // case.steps for case in cases}

    def rest(finding: Finding) -> float:
        """The finding's gain (a ratio) if its price left out the waiting for ranks."""
        return without(finding, inside.get(finding.worst_gpu, 0))  # type: ignore[arg-type]

    # A straggler stays beside a slow GPU, link or host, since only the straggler finding has the step since which the
    # rank is late.
    waiting_alone = _ALL_WAITING - ({"straggler"} if cause.code in OF_RANKS else set())
    folded = [
        one
        for one in found
        if one is not cause
        and ((one.code in waiting_alone and _of(one) & late) or (one.code in WITH_WAITING and rest(one) < REPORT_SHARE))
    ]
    left = [one for one in found if one is not cause and one not in folded]
    price = worth(cause) * _ALIKE
    whom = "it" if cause.gpu is not None else next(case.gpu.title for case in cases if case.index in late)
    place = next((at for at, one in enumerate(left) if _gives_way(one, rest(one), price)), len(left))
    place = min(place, list(found).index(cause))
    told = replace(cause, consequences=[_consequence(waiting, waits, folded, whom)])
    return [*left[:place], told, *left[place:]]


def _gives_way(one: Finding, rest: float, price: float) -> bool:
    return one.code in _NO_CAUSE and (rest if one.code in WITH_WAITING else worth(one)) <= price


def _late(found: Sequence[Finding], cases: Sequence[Case], waits: Mapping[int, int]) -> set[int]:
    """The GPUs that other ranks wait for, by the findings; without such findings, a GPU that waits less than half as
    long as another GPU."""
    for codes in (set(OF_RANKS) - {"straggler"}, {"straggler"}):
        named = [one for one in found if one.code in codes and one.gpu is not None]
        if named:
            return _of(named[0])
    told = [one.evidence["late_gpu"] for one in found if "late_gpu" in one.evidence]
    if told or len(cases) < 2:
        return set(told)
    least = min(waits, key=lambda index: waits[index])
    return {least} if 2 * waits[least] < max(waits.values()) else set()


def _of(finding: Finding) -> set[int]:
    """The indices of the GPUs that a finding concerns; for `gradients-wait-for-ranks`, the index of the late GPU."""
    if "late_gpu" in finding.evidence:
        return {finding.evidence["late_gpu"]}
    return set(finding.evidence.get("gpus", [])) | ({finding.gpu} if finding.gpu is not None else set())


def _cause(found: Sequence[Finding], late: Sequence[Case], waiting: Case) -> Finding | None:
    """The first finding on a late GPU that costs it enough to explain the waiting. A straggler's own finding comes
    before findings on its host, since all of them say to look at that host."""
    least_ns = _EXPLAINS * waiting.gpu.waiting_for_ranks_ns / waiting.steps
    gpus = {case.index for case in late}
    own = [one for one in found if one.gpu is not None and _of(one) & gpus]
    own += [one for one in found if one.gpu is None and _more_ns(one, late, waiting) >= least_ns]
    named = [one for one in own if one.code not in _NO_CAUSE and (one.cost_ns_per_step or 0) >= least_ns]
    stragglers = [one for one in own if one.code == "straggler"]
    return next(iter([*(one for one in named if one.code not in _OF_HOST), *stragglers, *named]), None)


def _more_ns(finding: Finding, late: Sequence[Case], waiting: Case) -> float:
    """ns per step by which the late GPU of this finding exceeds GPU `waiting`, in the ledger owners that price the
    finding."""
    each = [case.ns(*finding.owners) / case.steps for case in late if case.index == finding.evidence.get("gpu")]
    return max(each, default=0.0) - waiting.ns(*finding.owners) / waiting.steps


def _consequence(
    waiting: Sequence[Case], waits: Mapping[int, int], folded: Sequence[Finding], whom: str
) -> Consequence:
    longest = waiting[0]
    each = [case for case in waiting if waits[case.index] >= REPORT_SHARE * case.gpu.span_ns]
    ns = waits[longest.index]
    share = numbers.share(ns / longest.gpu.span_ns)
    title = longest.gpu.title
    text = f"{title} waits for {whom} for {share} of its time"
    if len(each) > 1:
        text = f"{numbers.count(len(each))} other GPUs wait for {whom}, {title} longest, for {share} of its time"
    last = next((one.evidence["arrived_last_share"] for one in folded if one.code == "straggler"), None)
    if last is not None:
        text += f"; {whom} arrives last at {numbers.share(last)} of the collectives"
    return Consequence(
        gpus=[case.index for case in each],
        share=ns / longest.gpu.span_ns,
        cost_ns_per_step=ns // longest.steps if longest.gpu.window == "steps" else None,
        codes=[one.code for one in folded],
        text=text,
    )
