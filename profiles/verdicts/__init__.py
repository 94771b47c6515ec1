"""What to change: findings ranked by what they would give back at most (docs/reference/findings.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..measures import Finding, Measures
from . import collectives, compute, feed, host, ranks, torch
from .case import Case, Context

__all__ = ["Context", "find"]

PER_GPU: tuple[Callable[[Case], Finding | None], ...] = (*compute.RULES, *host.RULES, *feed.RULES, *collectives.RULES)
ACROSS_GPUS: tuple[Callable[[Sequence[Case], Measures], list[Finding]], ...] = ranks.RULES


def find(measures: Measures, context: Context | None = None) -> list[Finding]:
    """All findings, the one that would give back most first; those without a price last.

    A verdict that holds for every GPU is one finding (gpu None) with the numbers of the GPU that loses most; one that
    holds for some is that GPU's, and its evidence names the others. The change is said in Keras's words, in
    PyTorch's where its kernels ran.
    """
    cases = [Case(index, gpu, context or Context()) for index, gpu in enumerate(measures.gpus) if gpu.span_ns]
    found: list[Finding] = []
    for rule in PER_GPU:
        each = [finding for case in cases if (finding := rule(case)) is not None]
        if len(each) == len(cases) and len(cases) > 1:
            worst = max(each, key=_worth)
            each = [replace(worst, gpu=None, evidence={**worst.evidence, "gpu": worst.gpu})]
        elif len(each) > 1:
            worst = max(each, key=_worth)
            each = [replace(worst, evidence={**worst.evidence, "gpus": [finding.gpu for finding in each]})]
        found += each
    for across in ACROSS_GPUS:
        found += across(cases, measures)
    if any(torch.made_kernels(case.gpu) for case in cases):
        found = [torch.reworded(finding) for finding in found]
    return sorted(found, key=_worth, reverse=True)


def _worth(finding: Finding) -> float:
    return -1.0 if finding.at_most_gain is None else finding.at_most_gain
