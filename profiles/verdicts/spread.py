"""Verdicts on how a training is spread over the GPUs: stages that wait for each other, copies from GPU to GPU."""

from __future__ import annotations

from collections.abc import Sequence

from .. import numbers
from ..measures import Finding, Measures
from ..numbers import share as percent
from .case import OTHER_LADDER, Case, degree

# Idle of a stage that has its batch: another stage computes, and the host launches nothing here until it has.
WAITING = ("idle_launch", "idle_wait", "idle_sync", "idle_unknown")
UNEQUAL = 1.25  # the largest stage's compute against the smallest's
ELSEWHERE = {
    "replicas": "weights on every GPU: --strategy horovod or mirrored move each gradient once, and no weights",
    "split": "cut where fewer bytes cross (fewer stages); half the bytes (--precision mixed_bfloat16)",
    "hybrid": "cut where fewer bytes cross (fewer stages); half the bytes (--precision mixed_bfloat16)",
}


def bubble(stages: int, micro_batches: int) -> float:
    """The share of a step for which each of equal stages stands still (GPipe, arXiv:1811.06965)."""
    return (stages - 1) / (micro_batches + stages - 1)


def pipeline_bubble(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """The GPU of a model in stages that waits longest for the others."""
    cell = cases[0].cell if cases else None
    if cell is None or not cell.spread.splits or cell.gpus_per_process < 2 or len(cases) < 2:
        return []
    worst = max(cases, key=lambda case: case.share(*WAITING))
    share, least = worst.share(*WAITING), bubble(cell.gpus_per_process, cell.micro_batches)
    computes = [case.share("compute") for case in cases]
    changes = [f"more micro-batches (--micro-batches {4 * cell.micro_batches}), as long as each still fills a GPU"]
    if min(computes) and max(computes) >= UNEQUAL * min(computes):
        apart = numbers.factor(max(computes) / min(computes))
        changes.append(f"stages of equal work: the largest computes {apart} as long as the smallest")
    changes.append("if the model fits one GPU, --strategy horovod, which has no stages")
    finding = worst.finding(
        "pipeline-bubble",
        {owner: worst.ns(owner) for owner in WAITING},
        text=f"{degree(share, OTHER_LADDER)} bound by its stages: {percent(share)} of the time {worst.gpu.title} has "
        f"nothing to do while another stage works; equal stages would stand still for {percent(least)}",
        change="; ".join(changes),
        evidence={
            "stages": cell.gpus_per_process,
            "micro_batches": cell.micro_batches,
            "bubble_of_equal_stages": least,
            "waiting_share": [case.share(*WAITING) for case in cases],
            "stages_compute_share": computes,
        },
        refuted_by="as much of it with four times the micro-batches",
    )
    return [finding] if finding else []


def copies_between_gpus(case: Case) -> Finding | None:
    """Copies from GPU to GPU while nothing computes: weights of replicas, activations of stages."""
    if not case.trains:
        return None
    exposed, share = case.ns("p2p"), case.share("p2p")
    return case.finding(
        "copies-between-gpus",
        {"p2p": exposed},
        text=f"{degree(share, OTHER_LADDER)} bound by copies between GPUs: {percent(share)} of the time they are not "
        "hidden by compute",
        change=ELSEWHERE.get(case.cell.strategy if case.cell else "", "keep on each GPU what it needs in every step"),
        evidence={"exposed_ns": exposed, "bytes_per_step": (case.gpu.copies["p2p"].bytes or 0) // case.steps},
        refuted_by="as long a step with everything on one GPU",
    )


RULES = (copies_between_gpus,)
ACROSS = (pipeline_bubble,)
