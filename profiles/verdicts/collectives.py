"""Findings on collectives: exposed all-reduces and other exchanges, small collectives, float32 gradients."""

from __future__ import annotations

import re

from ..ground import numbers
from ..ground.numbers import share as percent
from ..model.findings import Finding
from ..model.measures import GpuMeasures
from . import host_idle
from .case import OTHER_LADDER, REPORT_SHARE, Case, degree
from .shared_advice import less_often

MANY = 10  # From this number per step on, collectives are many: fused gradients take one or two.
SMALL_STEP_NS = 5_000_000
# Exposed exchange per step from which on overlap with the backward pass pays (WORTH_S in
# ringscope/ring/gradients/overlap/buckets.py). Below a hidden share of HIDDEN the exchange does not overlap yet.
WORTH_HIDING_NS = 2_000_000
HIDDEN = 0.1
GRADIENTS = ("all_reduce", "reduce", "other")
# Kind of collective -> (its name in texts, advice on how to shorten or hide it).
SHARDED = (
    "all-gather and reduce-scatter of a sharded model",
    "gather the next layer's weights while this one computes (FSDP: backward_prefetch=BACKWARD_PRE, "
    "forward_prefetch=True; fully_shard: set_modules_to_forward_prefetch); shard larger units; "
    "reshard_after_forward=False where memory allows; in DeepSpeed overlap_comm and a larger "
    "stage3_prefetch_bucket_size; bfloat16 weights; a larger batch",
)
# RCCL runs all kinds of collectives in one kernel, so the kernel's name does not tell the kind.
UNTOLD = (
    "collectives whose kind the recording does not give",
    "a model in shards (FSDP, ZeRO: it exchanges in the forward pass, too): gather the next layer's weights while this "
    "one computes (forward_prefetch, backward_prefetch, overlap_comm), larger units; a model that each rank has whole "
    "(DDP: in the backward pass alone): tune bucket_cap_mb, accumulate under no_sync(); a larger batch",
)
GATHERED = ("all-gather", "gather less often, in fewer bytes (16-bit numbers), or while other kernels compute")
OTHER_KINDS = {
    "all_gather": SHARDED,
    "reduce_scatter": SHARDED,
    "all_to_all": (
        "all-to-all between experts or embedding shards",
        "place the ranks that exchange most on one host; give each expert or shard equal work; exchange one part of "
        "the batch while another computes; send fewer bytes (16-bit activations)",
    ),
    "broadcast": (
        "broadcast from one rank to the others",
        "send weights once, at the start, and buffers rarely (DistributedDataParallel(broadcast_buffers=False), if "
        "each rank may keep its own statistics of BatchNorm); fewer, larger broadcasts",
    ),
    "send_recv": (
        "send and receive between ranks (all-to-all, or stages of a pipeline)",
        "pipeline: use more micro-batches, an interleaved schedule; all-to-all: place the ranks that exchange most "
        "on one host, and exchange one part of the batch while another computes",
    ),
}
# The element type in names of NCCL's kernels: AllReduce_Sum_bf16_RING_LL, before 2.19 AllReduce_RING_LL_Sum_half.
SUMMED = re.compile(
    r"(?i)nccl\w{0,20}?all_?reduce\w{0,40}?_(bf16|\w{0,20}bfloat16|half|float|double|[fiu]\d+)(?![a-z0-9])"
)
LESS_TO_SEND = "send gradients in half the bytes; take a larger batch, which needs fewer all-reduces per sample"
MOSTLY_WAITING = (
    "most of this time is waiting: make the ranks arrive together, with equal work and equally steady hosts"
)


def all_reduce_exposed(case: Case) -> Finding | None:
    """A finding on time in which gradients are summed over the ranks and nothing computes."""
    return _exposed_as("all-reduce-exposed", case, _called(case), _less_exposed(case)) if sums(case) else None


def sums(case: Case) -> bool:
    """True if the kind of collective that is exposed longest sums gradients, by its name or by the library."""
    kind = exposed_kind(case)
    told = kind != "other" or case.horovod or case.exchange not in (None, "fsdp")
    return kind in GRADIENTS and told


def _called(case: Case) -> str:
    return UNTOLD[0] if exposed_kind(case) == "other" else "all-reduce"


def collectives_exposed(case: Case) -> Finding | None:
    """A finding on exposed exchanges of sharded models, experts and pipelines, which carry no gradients to compress."""
    if sums(case):
        return None
    kind = exposed_kind(case)
    if kind not in OTHER_KINDS:
        what, change = UNTOLD[0], SHARDED[1] if is_sharded(case.gpu) else UNTOLD[1]
    else:
        what, change = GATHERED if kind == "all_gather" and not is_sharded(case.gpu) else OTHER_KINDS[kind]
    # Send and receive are left out: stages of a pipeline always wait for each other.
    parts = [MOSTLY_WAITING, change] if _mostly_waiting(case) and kind != "send_recv" else [change]
    return _exposed_as("collectives-exposed", case, what, "; ".join(parts))


def is_sharded(gpu: GpuMeasures) -> bool:
    """True if each rank keeps a part of the model, by the ranges or the collectives that ran."""
    return gpu.exchange == "fsdp" or "reduce_scatter" in gpu.collectives.kinds


def exposed_kind(case: Case) -> str:
    """The kind of collective that is exposed longest; `all_reduce` if the recording does not say."""
    kinds = {name: one["exposed_ns"] or 0 for name, one in case.gpu.collectives.kinds.items()}
    return max(kinds, key=lambda name: kinds[name], default="all_reduce")


def _exposed_as(code: str, case: Case, what: str, change: str) -> Finding | None:
    if not case.ns("compute"):
        return None  # A recording of collectives alone does not show what could hide them.
    exposed = case.ns("collective")
    found = case.gpu.collectives
    share = case.share("collective")
    for_others = found.exposed_waiting_ns
    waiting = f", {percent(for_others / case.gpu.span_ns)} waiting for other ranks" if for_others else ""
    return case.finding(
        code,
        {"collective": exposed},
        busy_saved_ns={"collective": for_others or 0},  # the link is unused while ranks wait for each other
        text=f"{degree(share, OTHER_LADDER)} communication-bound: {percent(share)} of the time is {what} not hidden by "
        f"compute{waiting}",
        change=change,
        evidence={
            "exposed_ns": exposed,
            "overlap": found.overlap,
            "waiting_ns": found.waiting_ns,
            "exposed_ns_by_kind": {name: one["exposed_ns"] for name, one in found.kinds.items()},
        },
        refuted_by="a step takes as long without any exchange",
        least_share=REPORT_SHARE if case.trains else OTHER_LADDER[1],
    )


def _mostly_waiting(case: Case) -> bool:
    return 2 * (case.gpu.collectives.waiting_ns or 0) > case.ns("collective")


def _less_exposed(case: Case) -> str:
    """Advice on hiding or shortening the all-reduce; for a run of `ringscope bench` less what it already uses."""
    parts = []
    if _mostly_waiting(case):
        parts.append(MOSTLY_WAITING)
    if not case.horovod:
        return "; ".join([*parts, LESS_TO_SEND])
    if _in_float32(case):
        parts.append(_half_the_bytes(case))
    parts.append(
        ", or ".join(filter(None, ["a larger batch, which needs fewer all-reduces per sample", less_often(case, 2)]))
    )
    if not case.compiled:
        parts.append("send gradients while others are still computed (step `fit`: ring.distribute(model, groups=4))")
    elif case.ns("collective") > WORTH_HIDING_NS * case.steps and (case.gpu.collectives.overlap or 0.0) < HIDDEN:
        parts.append("send gradients while others are still computed (ring.distribute(model, overlap=True))")
    return "; ".join(parts)


def _half_the_bytes(case: Case) -> str:
    """Advice to send gradients with 16 bits instead of float32."""
    how = case.told(bench="--compression fp16", script="ring.distribute(model, compression='fp16')")
    return f"send gradients in half the bytes ({how})"


def summed_as(gpu: GpuMeasures) -> str | None:
    """The type that all-reduces sum, by the recording, else by the name of the longest summing kernel: `float32`,
    `16 bits` or `other`; None: not known."""
    # kernels are sorted by total time, the longest first
    named = (found[1] for kernel in gpu.kernels.top if (found := SUMMED.search(kernel.name)))
    name = gpu.collectives.kinds.get("all_reduce", {}).get("dtype") or next(named, None)
    if name is None:
        return None
    return "float32" if name.lower() in ("f32", "float") else "16 bits" if re.search("(?i)16|half", name) else "other"


def _in_float32(case: Case) -> bool:
    """True if most gradients are sent as float32: by the cell's compression, else by the longest summing kernel, else
    by the cell's precision; also True if none of these three is known."""
    if case.cell is not None and case.cell.compression in ("fp16", "bf16"):
        return False
    known = summed_as(case.gpu)
    return known == "float32" if known else case.cell is None or case.cell.sends_float32


def many_small_collectives(case: Case) -> Finding | None:
    """A finding on gradients that are exchanged one by one, each with the latency of a whole ring."""
    per_step = _reductions(case)
    if per_step < MANY or case.gpu.window != "steps" or not sums(case) or case.infers:
        return None
    exposed = case.ns("collective")
    return case.finding(
        "collectives-not-fused",
        {"collective": exposed - exposed // per_step},
        text=f"{numbers.count(per_step)} collectives per step, and each has the latency of a whole exchange; "
        f"{percent(case.share('collective'))} of the time is exposed {_called(case).split(' of ')[0]}",
        change="hvd.grouped_allreduce over all gradients (what ring.distribute does), HOROVOD_FUSION_THRESHOLD above "
        "the gradients' bytes, HOROVOD_CYCLE_TIME not below 1 ms"
        if case.horovod
        else "one all-reduce over many gradients at a time",
        evidence={"collectives_per_step": per_step, "exposed_ns": exposed},
        refuted_by="a grouped all-reduce is exposed for as long",
    )


def _reductions(case: Case) -> int:
    """Collectives per step that sum gradients; all collectives if their kinds are not known."""
    found = case.gpu.collectives
    sums = [int(one["count"] or 0) for name, one in found.kinds.items() if name in GRADIENTS]
    if found.per_step and found.count:  # the window may also hold breaks, so the count is scaled to one step
        return found.per_step * sum(sums) // found.count if sums else found.per_step
    return sum(sums) // case.steps


def not_compressed(case: Case) -> Finding | None:
    """A finding on gradients exchanged in float32, at twice the bytes of fp16."""
    found = case.gpu.collectives
    if case.cell is None or not found.transfer_ns or not _in_float32(case):
        return None
    if "compression" not in case.cell.spread.heeds:
        return None
    halved = min(found.transfer_ns, found.exposed_ns) // 2
    return case.finding(
        "gradients-not-compressed",
        {"collective": halved},
        busy_saved_ns={"collective": found.transfer_ns // 2},
        # Transfers on several streams overlap, so their sum is capped at the time in which any collective runs.
        text=f"gradients travel as float32: {percent(min(found.transfer_ns, found.busy_ns) / case.gpu.span_ns)} of the "
        "time transfers them",
        change="ring.distribute(model, compression='fp16') (--compression fp16)",
        evidence={"transfer_ns": found.transfer_ns, "bytes_per_step": found.bytes_per_step},
        refuted_by="the transfer takes as long with fp16",
    )


def too_small_for_so_many(case: Case) -> Finding | None:
    """A finding on steps too short for this many GPUs: the exchange takes a large part of each step."""
    period = case.gpu.steps.period_ns
    apart = case.ns("collective")
    if (
        not sums(case)
        or case.infers
        or period is None
        or period.p50 > SMALL_STEP_NS
        or case.share("collective") < OTHER_LADDER[0]
    ):
        return None
    moved = case.gpu.collectives.bytes_per_step
    size, launching = f" of {numbers.size(moved)}" if moved else "", host_idle.late_launch_ns(case)
    return case.finding(
        "model-too-small",
        # A larger batch, or one exchange for several batches, reduces exchange and launches per sample.
        {"collective": apart, "idle_launch": launching},
        text=f"a step takes {numbers.duration(period.p50)}, of which {percent(case.share('compute'))} computes and "
        f"{percent(apart / case.gpu.span_ns)} is exposed all-reduce{size}: the exchange is too large for so little "
        "compute, the model too small for this many GPUs at this batch"
        + (
            f"; a larger batch also shrinks the wait for launches ({percent(launching / case.gpu.span_ns)})"
            if launching
            else ""
        ),
        change=", ".join(filter(None, ["a larger batch", less_often(case, 4), "or fewer GPUs"])),
        evidence={"period_p50_ns": period.p50, "exposed_ns": apart, "bytes_per_step": moved},
        refuted_by="with four times the batch the all-reduce takes as large a share",
    )


RULES = (all_reduce_exposed, collectives_exposed, many_small_collectives, not_compressed, too_small_for_so_many)
