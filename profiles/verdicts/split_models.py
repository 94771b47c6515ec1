"""Findings on models split over GPUs: pipeline bubbles, and copies between GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ground import numbers
from ..ground.numbers import share as percent
from ..model.findings import Finding
from . import order
from .case import OTHER_LADDER, Case, degree

# A pipeline stage has these owners of idle time while it waits for other stages, since the host launches nothing in
# this time.
WAITING = ("idle_launch", "idle_wait", "idle_sync", "idle_unknown")
UNEQUAL = 1.25  # Stages are unequal if the largest computes this many times as long as the smallest.
ELSEWHERE = {
    "replicas": "weights on every GPU: --strategy horovod and mirrored move each gradient once, and no weights",
    **dict.fromkeys(
        ("split", "hybrid"),
        "cut the model where fewer bytes cross (fewer stages); send half the bytes (--precision mixed_bfloat16)",
    ),
}


def bubble(stages: int, micro_batches: int) -> float:
    """The pipeline bubble of equal stages: each stage's idle share of a step (GPipe, arXiv:1811.06965)."""
    return (stages - 1) / (micro_batches + stages - 1)


def pipelines(cases: Sequence[Case]) -> list[list[Case]]:
    """The recorded stages (GPUs) of each process with a pipeline; empty for other cells."""
    cell = cases[0].cell if cases else None
    if cell is None or not cell.spread.splits or cell.gpus_per_process < 2:
        return []
    of_process: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        of_process.setdefault((case.gpu.rank, *case.gpu.recordings), []).append(case)
    return [stages for stages in of_process.values() if len(stages) > 1]


def for_others(case: Case, stages: Sequence[Case]) -> float:
    """The share of time that a stage waits for others: its idle share, capped by the sum of the others' busy shares."""
    working = sum(1 - other.share(*WAITING) for other in stages if other is not case)
    return min(case.share(*WAITING), working)


def own_idle(cases: Sequence[Case]) -> list[Case]:
    """The cases without the idle time of stages that `pipeline-bubble` explains by other stages. Idle time in which no
    stage works belongs to the busiest stage, since the other stages wait for that stage."""
    own = {case.index: case for case in cases}
    for stages in pipelines(cases):
        busiest = min(stages, key=lambda case: case.share(*WAITING))
        for case in stages:
            waiting = case.share(*WAITING)
            explained = for_others(case, stages) / waiting if case is busiest and waiting else 1.0
            left = {name: ns - round(ns * explained) for name in WAITING if (ns := case.gpu.ledger_ns.get(name))}
            own[case.index] = replace(case, gpu=replace(case.gpu, ledger_ns={**case.gpu.ledger_ns, **left}))
    return list(own.values())


def pipeline_bubble(cases: Sequence[Case]) -> list[Finding]:
    """A finding on the stage that waits longest, in the pipeline with the largest gain. The gain compares with equal
    stages that never wait for each other, and keeps the time in which no stage works."""
    each = (_bubble(max(stages, key=lambda case: case.share(*WAITING)), stages) for stages in pipelines(cases))
    found = [finding for finding in each if finding is not None]
    return [max(found, key=order.worth)] if found else []


def _bubble(worst: Case, stages: Sequence[Case]) -> Finding | None:
    cell = worst.cell
    assert cell is not None
    share, least = worst.share(*WAITING), bubble(cell.gpus_per_process, cell.micro_batches)
    behind = for_others(worst, stages)
    working = sum(1 - case.share(*WAITING) for case in stages)
    left_ns = round((min(1.0, working) - working / len(stages)) * worst.gpu.span_ns)
    saved: dict[str, int] = {}
    for owner in WAITING:
        saved[owner] = min(worst.ns(owner), left_ns)
        left_ns -= saved[owner]
    computes = [case.share("compute") for case in stages]
    changes = [f"more micro-batches (--micro-batches {4 * cell.micro_batches}), as long as each still fills a GPU"]
    if min(computes) and max(computes) >= UNEQUAL * min(computes):
        apart = numbers.factor(max(computes) / min(computes))
        changes.append(f"make stages of equal work: the largest computes {apart} as long as the smallest")
    changes.append("if the model fits one GPU, --strategy horovod, which has no stages")
    return worst.finding(
        "pipeline-bubble",
        saved,
        text=f"{degree(behind, OTHER_LADDER)} bound by its stages: {worst.gpu.title} has nothing to do for "
        f"{percent(share)} of the time, for {percent(behind)} while another stage works; equal stages would have "
        f"nothing to do for {percent(least)}",
        change="; ".join(changes),
        evidence={
            "stages": cell.gpus_per_process,
            "micro_batches": cell.micro_batches,
            "bubble_of_equal_stages": least,
            "waiting_share": [case.share(*WAITING) for case in stages],
            "waiting_for_stages_share": [for_others(case, stages) for case in stages],
            "stages_compute_share": computes,
        },
        refuted_by="a stage waits for as long with four times the micro-batches",
    )


def copies_between_gpus(case: Case) -> Finding | None:
    """A finding on copies between GPUs while nothing computes: weights of replicas, activations of stages."""
    exposed, share = case.ns("p2p"), case.share("p2p")
    return case.finding(
        "copies-between-gpus",
        {"p2p": exposed},
        text=f"{degree(share, OTHER_LADDER)} bound by copies between GPUs: {percent(share)} of the time they are not "
        "hidden by compute",
        change=ELSEWHERE.get(case.cell.strategy if case.cell else "", "keep on each GPU what it needs in every step"),
        evidence={"exposed_ns": exposed, "bytes_per_step": (case.gpu.copies["p2p"].bytes or 0) // case.steps},
        refuted_by="with the whole model on one GPU a step takes as long",
    )


RULES = (copies_between_gpus,)
