"""Findings on kernels and on their launches."""

from __future__ import annotations

import re

from ..gpus.collective_kernels import function_of
from ..ground import numbers
from ..ground.numbers import share as percent
from ..metrics.kernels import UNFUSED
from ..metrics.peaks import lacks_tensor_cores, lacks_tf32
from ..model.findings import Finding
from . import host_idle
from .case import LEAST_KERNELS, OTHER_LADDER, REPORT_SHARE, Case, degree
from .gpu_facts import convolves, misaligned, on_cuda_cores
from .shared_advice import compiling

# A step with more kernels is not compiled: a compiled ResNet-50 step has some 700, an eager one 3 800.
STORM_KERNELS = 1_000
# With fewer kernels, a framework's step is not compiled if element-wise work, reductions and normalisation take this
# share of the time: that is much even if the host launches them ahead of the GPU.
UNFUSED_SHARE = 0.2
RNN_GATES_A_STEP = 60  # 20 time steps with 3 gates each
RNN_CELLS_A_STEP = 20
ASYNC_COMPLETION = (
    "; HOROVOD_ENABLE_ASYNC_COMPLETION=1 (ring.init sets it) launches the update without waiting for the "
    "all-reduce to end"
)
FRAMEWORK_REDUCTIONS = re.compile(r"ColumnReduce|RowReduce|Rsqrt_GPU|SquaredDifference")


def not_compiled(case: Case) -> Finding | None:
    """A finding on steps of many kernels, or of much element-wise work, none compiled: compiling fuses such work."""
    kernels = case.gpu.kernels
    count, summed_ns = case.group(*UNFUSED)
    unfused_ns = summed_ns if kernels.unfused_ns is None else kernels.unfused_ns
    per_step, of_framework = kernels.per_step or 0, case.gpu.framework in ("pytorch", "tensorflow")
    much = of_framework and per_step >= LEAST_KERNELS and unfused_ns >= UNFUSED_SHARE * case.gpu.span_ns
    if case.compiled or (per_step < STORM_KERNELS and not much):
        return None
    launching = ("idle_turnaround", "idle_launch")
    saved = {"compute": unfused_ns}
    if per_step >= STORM_KERNELS:
        saved |= {owner: case.ns(owner) for owner in launching}
    return case.finding(
        "not-compiled",
        saved,
        busy_saved_ns={"compute": unfused_ns},
        text=f"{numbers.count(kernels.per_step)} kernels {case.each}, none of them compiled: element-wise work, "
        f"reductions and normalisation take {percent(unfused_ns / case.gpu.span_ns)} of the time{_beside(case)}"
        + (f", launching {percent(case.share(*launching))}" if case.gpu.ledger_ns["idle_launch"] is not None else ""),
        change=compiling(case),
        evidence={
            "kernels_per_step": kernels.per_step,
            "unfused_kernels": count,
            "unfused_ns": unfused_ns,
            "fusion_candidate_runs": kernels.short_elementwise_runs.get("runs"),
            "fusion_candidate_kernels": kernels.short_elementwise_runs.get("kernels"),
        },
        refuted_by="a compiled run of the same cell has as many kernels per step, or takes as long",
    )


def _beside(case: Case) -> str:
    """A clause that names slow kernels which compiling does not remove; "" if such kernels take little time."""
    called = {"embedding": "lookups in embedding tables", "sort": "sorting", "concatenation": "concatenation"}
    shares = {what: case.group(group)[1] / case.gpu.span_ns for group, what in called.items()}
    told = [f"{what} {percent(share)}" for what, share in shares.items() if share >= OTHER_LADDER[1]]
    return f" (compiling does not remove {', '.join(told)})" if told else ""


def unfused_batch_norm(case: Case) -> Finding | None:
    """A finding on batch normalisation that runs as separate reductions and multiplications, not as one kernel."""
    if case.group("batch_norm")[0] or case.group("fused")[0]:
        return None
    if not convolves(case.gpu):
        return None  # A transformer's reductions come from layer normalisation and from gradients of biases.
    named = [k for k in case.gpu.kernels.top if FRAMEWORK_REDUCTIONS.search(k.name)]
    reduction_ns = min(case.group("reduction")[1], case.gpu.busy_ns.get("compute") or 0)
    if not named:
        return None
    return case.finding(
        "unfused-batch-norm",
        {"compute": reduction_ns},
        busy_saved_ns={"compute": reduction_ns},
        text=f"normalisation runs as separate reductions ({function_of(named[0].name)}): "
        f"{percent(reduction_ns / case.gpu.span_ns)} of the time",
        change=f"compile the step ({compiling(case)}), or normalise with tf.nn.fused_batch_norm in a layer of your own"
        ": Keras 3's BatchNormalization does not use cuDNN's",
        evidence={"reduction_ns": reduction_ns, "kernels": {k.name: k.count for k in named}},
        refuted_by="batch_norm kernels replace the reductions, and take as long",
    )


def generic_rnn_cell(case: Case) -> Finding | None:
    """A finding on recurrent layers that run each gate of each time step as a kernel, instead of cuDNN's fused cell."""
    gates = case.group("rnn_gates")[0] / case.steps
    cells = case.gpu.kernels.recurrent_cells / case.steps
    if case.group("rnn_cell")[0] or gates < RNN_GATES_A_STEP or cells < RNN_CELLS_A_STEP:
        return None
    launching = {"idle_launch": case.ns("idle_launch"), "idle_turnaround": case.ns("idle_turnaround")}
    step_kernels_ns = case.group("rnn_gates", "elementwise")[1]
    return case.finding(
        "generic-rnn-cell",
        {**launching, "compute": step_kernels_ns},
        busy_saved_ns={"compute": step_kernels_ns},
        text=f"{numbers.count(round(cells))} cells and {numbers.count(round(gates))} gate kernels {case.each}: the "
        "recurrent layers run cell by cell, where cuDNN needs some tens of kernels per layer",
        change="keep keras.layers.LSTM/GRU's defaults (activation tanh, recurrent_activation sigmoid, no recurrent "
        "dropout, unroll=False, reset_after=True) so that use_cudnn='auto' takes cuDNN's cell; in mixed_bfloat16 call "
        "ring.init() first, since TensorFlow 2.21's own gradient of that cell is wrong in bfloat16",
        evidence={"gate_kernels_per_step": round(gates, 1), "kernels_per_step": case.gpu.kernels.per_step}
        | {"cells_per_step": round(cells, 1)},
        refuted_by="with cuDNN's cell a step has as many kernels, or is no faster",
    )


def launch_bound(case: Case) -> Finding | None:
    """A finding on time in which the GPU waits for a launch. The time includes sync idle that would remain if the host
    did not wait."""
    waiting, after = host_idle.late_launch_ns(case), sum(host_idle.after_waits_ns(case))
    share = (waiting + after) / case.gpu.span_ns
    if not case.trains or share < OTHER_LADDER[1]:
        return None
    latency = case.gpu.kernels.launch_latency_ns or {}
    return case.finding(
        "launch-bound",
        {"idle_launch": waiting, "idle_sync": after},
        text=f"{degree(share, OTHER_LADDER)} launch-bound: {percent(share)} of the time the GPU waits for a launch"
        + (f", {percent(after / case.gpu.span_ns)} after a wait for the GPU" if after else ""),
        change=f"fewer, larger launches: {_longer_kernels(case)}; steps_per_execution in model.compile"
        + (ASYNC_COMPLETION if case.gpu.collectives.count and case.horovod and case.cell is None else ""),
        evidence={"idle_launch_ns": waiting, "launch_latency_ns": latency}
        | ({"after_wait_ns": after} if after else {}),
        refuted_by="with a larger batch the GPU still waits for launches for the same share of the time",
    )


def graphs_updated(case: Case) -> Finding | None:
    """A finding on CUDA graphs whose nodes the host updates before each launch, while the GPU waits."""
    updates = case.gpu.graph_updates
    if not updates or case.gpu.window != "steps" or updates["count"] < 0.9 * case.steps:
        return None
    waiting = min(updates["idle_launch_ns"], case.ns("idle_launch"))
    count = max(1, round(updates["count"] / case.steps))
    return case.finding(
        "graphs-updated-every-step",
        {"idle_launch": waiting},
        text=f"{numbers.count(count)} calls {case.each} change the nodes of a CUDA graph before it is launched, and "
        f"{percent(waiting / case.gpu.span_ns)} of the time the GPU waits for them",
        change="keep the buffers where they are from step to step: donated or resident inputs; if they must move, "
        "without command buffers (XLA_FLAGS=--xla_gpu_enable_command_buffer=) and with a larger batch",
        evidence={"calls_per_step": count, "idle_launch_in_them_ns": waiting},
        refuted_by="even without these calls the GPU waits as long for launches",
    )


def short_kernels(case: Case) -> Finding | None:
    """A finding on turnaround: the GPU's delay between the end of one kernel and the start of the next, which only
    fewer kernels reduce."""
    share = case.share("idle_turnaround")
    ran = case.gpu.kernels.count + case.gpu.kernels.graph_launches
    # With a few kernels and no steps, turnaround may follow copies instead of kernels.
    if share < OTHER_LADDER[1] or (case.gpu.window != "steps" and ran < LEAST_KERNELS):
        return None
    return case.finding(
        "short-kernels",
        {"idle_turnaround": case.ns("idle_turnaround")},
        text=f"{percent(share)} of the time passes between the end of one short kernel and the start of the next",
        change=_longer_kernels(case),
        evidence={
            "idle_turnaround_ns": case.ns("idle_turnaround"),
            "median_ns": case.gpu.kernels.median_ns,
            **{f"hand_over_{kind}_ns": found["p50_ns"] for kind, found in (case.gpu.hand_over_ns or {}).items()},
        },
        refuted_by="as much time passes between fewer or longer kernels",
    )


def _longer_kernels(case: Case) -> str:
    """Advice on how to get fewer or longer kernels."""
    larger = "a larger batch" + case.told(bench=" (--per-rank-batch)", script="")
    if case.compiled:
        return f"{larger}; the step is compiled already"
    return f"compile the step ({compiling(case)}); {larger}"


def off_tensor_cores(case: Case) -> Finding | None:
    """A finding on matrix products off the tensor cores: float32, or dimensions that are no multiples of 8 or 16."""
    named = [k for k in case.gpu.kernels.top if misaligned(k.name, case.gpu.name)]
    cell = case.cell
    uneven = cell is not None and cell.precision != "float32" and cell.per_rank_batch % 8
    if (not named and not uneven) or lacks_tensor_cores(case.gpu.name):
        return None
    ns = sum(k.total_ns for k in named)
    if not uneven and ns < REPORT_SHARE * case.gpu.span_ns:
        return None
    if named:
        word = misaligned(named[0].name, case.gpu.name) or ""
        float32 = "float32, which they do not take" if lacks_tf32(case.gpu.name) else "float32 without TF32"
        why = f"{float32}, or dimensions that are no multiples of 8"
        text = (
            f"{word} runs outside of the tensor cores: {why}"
            if on_cuda_cores(word, case.gpu.name)
            else f"{word} is a kernel for dimensions that are no multiples of 8"
        )
        taken = min(1, ns / (case.gpu.busy_ns.get("compute") or ns))  # kernels of several streams may overlap
        text += f"; {'it takes' if len(named) == 1 else 'kernels like it take'} {percent(taken)} of the compute time"
    else:
        text = f"the batch {cell.per_rank_batch} is no multiple of 8"  # type: ignore[union-attr]
    return case.unpriced(
        "off-tensor-cores",
        text=text,
        change="make batch, channels, units and classes multiples of 8 for 16-bit numbers, of 16 for 8-bit ones",
        evidence={"kernels": {k.name: k.total_ns for k in named}, "time_share": ns / (case.whole or case.gpu).span_ns},
        refuted_by="padded dimensions take as long",
    )


RULES = (
    not_compiled,
    unfused_batch_norm,
    generic_rnn_cell,
    launch_bound,
    graphs_updated,
    short_kernels,
    off_tensor_cores,
)
