"""Find all findings of a run by the rules of each subject, and rank them (docs/reference/findings.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..model.findings import Finding
from ..model.measures import Measures
from . import (
    advice_by_framework,
    breaks,
    collectives,
    compute,
    consequences,
    copies,
    feed,
    host,
    order,
    places,
    ranks,
    slow,
    small_batches,
    split_models,
)
from .case import Case, Context
from .not_judged import not_judged

# `python-in-the-loop` and `launch-bound` count overlapping time, so one of them is dropped: `launch-bound` if
# `python-in-the-loop` counts at least the share _TWIN of its time, else `python-in-the-loop` if it counts less than the
# share _REMARK.
_TWIN, _REMARK = 0.8, 0.5
PER_GPU: tuple[Callable[[Case], Finding | None], ...] = (
    *compute.RULES,
    *small_batches.RULES,
    *host.RULES,
    *feed.RULES,
    *copies.RULES,
    *collectives.RULES,
    *split_models.RULES,
)
ACROSS_GPUS: tuple[Callable[[Sequence[Case], Measures], list[Finding]], ...] = (
    *ranks.RULES,
    *slow.RULES,
    *breaks.RULES,
)


def judge(measures: Measures, context: Context | None = None) -> None:
    """Write the breaks' causes and the findings into the measures."""
    measures.breaks = breaks.told(measures)
    measures.findings = find(measures, context)


def find(measures: Measures, context: Context | None = None) -> list[Finding]:
    """All findings, the one with the largest gain first (see `order`); findings without a price last.

    A finding that holds for every GPU is reported once (gpu None), with the numbers of the GPU that loses most. If it
    holds for some GPUs, it belongs to the one that loses most, and its evidence lists all of them. The advice names the
    functions and options of the GPU's framework.
    """
    every = [
        Case.of(index, gpu, context or Context(), measures.recordings[gpu.recordings[0]].format)
        for index, gpu in enumerate(measures.gpus)
        if gpu.span_ns
    ]
    recorded = [case for case in every if case.gpu.told]
    found = split_models.pipeline_bubble(recorded)
    # `pipeline-bubble` already counts the time in which stages wait for each other.
    cases = split_models.own_idle(recorded)
    single: list[Finding] = []  # findings before they are merged over GPUs
    for rule in PER_GPU:
        made = [finding for case in cases if case.computes and (finding := rule(case)) is not None]
        each = [said for finding in made if (said := _said(finding, cases)) is not None]
        single += each
        found += _together(each, len(cases))
    of_places: list[Finding] = []
    every_place = [finding for case in cases if case.computes for finding in places.findings(case)]
    single += every_place
    for same in places.together(every_place):
        of_places += _together(same, len(cases))
    across = [said for rule in ACROSS_GPUS for one in rule(cases, measures) if (said := _said(one, cases)) is not None]
    found = places.instead(_without_twins(found + across), of_places, every_place)
    silent = [case for case in every if not case.gpu.told]
    lost = [one for case in (*cases, *silent) if (one := not_judged(case, single + across, measures)) is not None]
    for remedy in dict.fromkeys(one.change for one in lost):  # GPUs without recorded kernels may need another remedy
        found += _together([one for one in lost if one.change == remedy], len(every))
    ranked = sorted(found, key=order.rank(found, many=measures.many), reverse=True)
    return consequences.causes_first(order.told_once(ranked), cases)


def _together(each: list[Finding], gpus: int) -> list[Finding]:
    """Merge one rule's findings on several GPUs into the finding of the GPU that loses most."""
    if len(each) < 2:
        return each
    worst = max(each, key=order.worth)
    if len(each) == gpus:
        return [replace(worst, gpu=None, evidence={**worst.evidence, "gpu": worst.gpu})]
    return [replace(worst, evidence={**worst.evidence, "gpus": [finding.gpu for finding in each]})]


def _said(finding: Finding, cases: Sequence[Case]) -> Finding | None:
    """The finding with advice for its GPU's framework; None if it does not apply to that framework."""
    case = next((case for case in cases if case.index == finding.worst_gpu), cases[0])
    return advice_by_framework.said(finding, case.gpu, exchange=case.exchange, cell=case.cell)


def _without_twins(found: Sequence[Finding]) -> list[Finding]:
    """Drop `python-in-the-loop` or `launch-bound` if both concern the same GPUs, since they count overlapping time.
    The remaining finding gets the evidence of both. Both stay if the host spends about half of the time in CUDA calls.
    """
    of = {finding.code: finding for finding in found}  # each code occurs once, since findings are merged over GPUs
    launch, python = of.get("launch-bound"), of.get("python-in-the-loop")
    if launch is None or python is None or not (launch.worst_gpu == python.worst_gpu or _alike(launch, python)):
        return list(found)
    outside, waiting = (sum(one.saved_ns.values()) for one in (python, launch))
    if _REMARK * waiting <= outside < _TWIN * waiting:
        return list(found)
    kept, gone = (python, launch) if outside >= _TWIN * waiting else (launch, python)
    both = replace(kept, evidence={**gone.evidence, **kept.evidence})
    return [both if one is kept else one for one in found if one is not gone]


def _alike(one: Finding, other: Finding) -> bool:
    """True if both findings concern the same set of GPUs."""
    mine, theirs = (None if each.gpu is None else each.evidence.get("gpus", [each.gpu]) for each in (one, other))
    return mine == theirs
