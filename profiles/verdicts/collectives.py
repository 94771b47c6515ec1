"""Verdicts on the all-reduce."""

from __future__ import annotations

from .. import numbers
from ..measures import Finding
from ..numbers import share as percent
from .case import OTHER_LADDER, Case, degree

MANY = 10  # collectives a step; a fused one needs one or two
SMALL_STEP_NS = 5_000_000
MOSTLY_WAITING = "most of it is waiting: make the ranks arrive together, with as much work and as steady a host each"


def all_reduce_exposed(case: Case) -> Finding | None:
    """Time in which the all-reduce runs and nothing computes."""
    if not case.trains:
        return None
    exposed = case.ns("collective")
    found = case.gpu.collectives
    share = case.share("collective")
    waiting = (
        f", of which {percent(found.waiting_ns / case.gpu.span_ns)} waiting for other ranks" if found.waiting_ns else ""
    )
    return case.finding(
        "all-reduce-exposed",
        {"collective": exposed},
        text=f"{degree(share, OTHER_LADDER)} communication-bound: compute hides none of {percent(share)} of the time, "
        f"the exposed all-reduce{waiting}",
        change=_less_exposed(case),
        evidence={"exposed_ns": exposed, "overlap": found.overlap, "waiting_ns": found.waiting_ns},
        refuted_by="no all-reduce at all (--strategy none) with the same step time",
    )


def _less_exposed(case: Case) -> str:
    """What the cell does not do yet; all of it where no cell is known."""
    found, cell = case.gpu.collectives, case.cell
    parts = []
    if 2 * (found.waiting_ns or 0) > case.ns("collective"):
        parts.append(MOSTLY_WAITING)
    if cell is None or cell.compression == "none":
        parts.append("gradients of half the bytes (--compression fp16)")
    parts.append("fewer all-reduces a sample: a larger batch, or --aggregate 2")
    if not case.compiled:
        parts.append("gradients that leave while others are computed (step `fit`: ring.distribute(model, groups=4))")
    return "; ".join(parts)


def many_small_collectives(case: Case) -> Finding | None:
    """Gradients that travel one by one pay the latency of a ring each time."""
    per_step = case.gpu.collectives.per_step or 0
    if per_step < MANY:
        return None
    exposed = case.ns("collective")
    return case.finding(
        "collectives-not-fused",
        {"collective": exposed - exposed // per_step},
        text=f"{numbers.count(per_step)} collectives a step: each pays the ring's latency; "
        f"{percent(case.share('collective'))} of the time is exposed all-reduce",
        change="hvd.grouped_allreduce over all gradients (what ring.distribute does), HOROVOD_FUSION_THRESHOLD above "
        "the gradients' bytes, HOROVOD_CYCLE_TIME not below 1 ms",
        evidence={"collectives_per_step": per_step, "exposed_ns": exposed},
        refuted_by="one grouped all-reduce with as much exposed time",
    )


def not_compressed(case: Case) -> Finding | None:
    """Gradients in float32 move twice the bytes of fp16."""
    found = case.gpu.collectives
    if case.cell is None or case.cell.compression != "none" or not found.transfer_ns:
        return None
    halved = min(found.transfer_ns, found.exposed_ns) // 2
    return case.finding(
        "gradients-not-compressed",
        {"collective": halved},
        busy_saved_ns={"collective": found.transfer_ns // 2},
        text=f"gradients travel as float32: {percent(found.transfer_ns / case.gpu.span_ns)} of the time transfers them",
        change="ring.distribute(model, compression='fp16') (--compression fp16)",
        evidence={"transfer_ns": found.transfer_ns, "bytes_per_step": found.bytes_per_step},
        refuted_by="fp16 with the same transfer time",
    )


def too_small_for_so_many(case: Case) -> Finding | None:
    """Steps so short that ranks spend more on agreeing than on computing."""
    period = case.gpu.steps.period_ns
    apart = case.ns("collective")
    if period is None or period.p50 > SMALL_STEP_NS or case.share("collective") < OTHER_LADDER[0]:
        return None
    return case.finding(
        "model-too-small",
        {"collective": apart},
        text=f"a step takes {numbers.duration(period.p50)} and {percent(case.share('collective'))} of it is exposed "
        "all-reduce: the model is too small for so many GPUs at this batch",
        change="a larger batch, --aggregate 4, or fewer GPUs",
        evidence={"period_p50_ns": period.p50, "exposed_ns": apart},
        refuted_by="four times the batch with the same share of all-reduce",
    )


RULES = (all_reduce_exposed, many_small_collectives, not_compressed, too_small_for_so_many)
