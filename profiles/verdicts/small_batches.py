"""Findings on batches and models too small to fill a GPU: advice to train with a larger batch, or on the CPU."""

from __future__ import annotations

from ..gpus.collective_kernels import function_of
from ..ground.numbers import share as percent
from ..metrics.doubts import PLAIN
from ..metrics.kernels import is_unfused
from ..model.findings import Finding
from . import host_idle
from .case import Case
from .compute import not_compiled

SHORT_SHARE = 0.5
# A batch is too small if short kernels take at least this share of the compute time. A count of kernels does not show
# that: in ResNet-50, 58 % of the kernels are short, but they take 6 % of the time. In small models that larger batches
# made faster, short kernels took 28 to 44 % of the time.
SHORT_TIME = 0.2
CPU_SLOWER = 10  # For kernels that fill a GPU, a CPU takes at least this many times as long.
FILLED_SHARE = 0.6  # Short kernels mean too few samples only on a GPU that computes for no larger share of the time.
# Kernels of too few blocks are told from this share of the window on, weighted by the multiprocessors without a block.
# In ResNet-50, VGG-16 and dense layers that fill a GPU, such kernels (the last part of a reduction) take up to 3 %.
UNFILLED_SHARE = 0.1


def tiny_batch(case: Case) -> Finding | None:
    """A finding on kernels too short or of too few blocks to fill the GPU, where more samples per step cost little
    extra time."""
    kernels, few = case.gpu.kernels, case.gpu.kernels.unfilled
    few_ns = few.lost_ns if few and few.lost_ns >= UNFILLED_SHARE * case.gpu.span_ns and not case.example else 0
    if few and few_ns and is_unfused(few.kernels[0]) and not_compiled(case):
        few_ns = 0  # A larger batch gives a reduction over it no more blocks, and compiling replaces it.
    short_ns = (kernels.under_5us_ns or 0) if _mostly_short(case) else 0
    if not (few_ns or short_ns):
        return None
    idle = {"idle_launch": host_idle.late_launch_ns(case), "idle_turnaround": case.ns("idle_turnaround")}
    batch = f"the batch{f' (now {case.cell.per_rank_batch} a rank)' if case.cell else ''} does not fill the GPU"
    if few and few_ns:
        text = (
            f"for {percent(few.ns / case.gpu.span_ns)} of the time the running kernels have fewer blocks than half of "
            f"the GPU's {few.multiprocessors} multiprocessors (most of it {function_of(few.kernels[0])}), and "
            "the rest of the GPU is empty"
        )
    else:
        text = f"{percent(kernels.share_under_5us or 0.0)} of the kernels take less than 5 µs: {batch}"
    saved_ns = max(few_ns, short_ns)
    return case.finding(
        "tiny-batch",
        {**(idle if short_ns else {}), "compute": saved_ns},
        busy_saved_ns={"compute": saved_ns},
        text=text,
        change=case.told(bench="raise --per-rank-batch", script="a larger batch")
        + " until samples/s stop growing; raise the learning rate with the batch "
        "(ring.distribute(..., scale_learning_rate=True))",
        evidence={
            "share_under_5us": kernels.share_under_5us,
            "under_5us_ns": kernels.under_5us_ns,
            "median_ns": kernels.median_ns,
        }
        | ({"few_blocks_ns": few.ns, "few_blocks_lost_ns": few.lost_ns, "few_blocks": few.kernels} if few else {}),
        refuted_by="twice the batch takes twice the time per step",
    )


def _mostly_short(case: Case) -> bool:
    """True if short kernels take so much of a training's computing time that its batch is too small."""
    kernels = case.gpu.kernels
    trains = case.trains_a_model and case.gpu.framework not in (*PLAIN, "onnxruntime")
    many = (kernels.share_under_5us or 0.0) >= SHORT_SHARE and case.share("compute") <= FILLED_SHARE
    much = (kernels.under_5us_ns or 0) >= SHORT_TIME * (case.gpu.busy_ns.get("compute") or 0)
    return trains and many and much


def gpu_mostly_idle(case: Case) -> Finding | None:
    """A finding on models so small that a CPU may train them faster: the GPU computes for a small part of the time, and
    mostly in kernels too short to fill it."""
    computing = case.share("compute", "collective")
    waiting = host_idle.late_launch_ns(case) + case.ns("idle_sync", "idle_turnaround", "idle_wait")
    if not case.trains_a_model or case.infers or computing > 0.15 or waiting < 0.5 * case.gpu.span_ns:
        return None
    filling_ns = (case.gpu.busy_ns.get("compute") or 0) - (case.gpu.kernels.under_5us_ns or 0)
    if CPU_SLOWER * filling_ns > case.gpu.span_ns:
        return None
    return case.unpriced(
        "cpu-may-be-faster",
        text=f"the GPU computes {percent(computing)} of the time; a CPU may train this model faster",
        change="compare: "
        + case.told(
            bench="CUDA_VISIBLE_DEVICES= ringscope bench with the same model and batch",
            script="the same script with CUDA_VISIBLE_DEVICES= ",
        )
        + "; else a larger batch",
        evidence={"compute_share": computing, "waiting_ns": waiting},
        refuted_by="fewer samples/s on the CPU",
    )


RULES = (tiny_batch, gpu_mostly_idle)
