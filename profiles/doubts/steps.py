"""Doubts about steps, and about start-up, warm-up and pauses in the window. `where` is the JSON pointer of the GPU."""

from __future__ import annotations

from ..ground import numbers
from ..model.measures import GpuMeasures
from ..model.steps import Steps
from ..model.timeline import Doubt

# Advice on how to mark steps, by the format of the recording.
MARK_STEPS = {
    "kineto": "call prof.step() after each step: torch.profiler then marks them `ProfilerStep#N`",
    **dict.fromkeys(("rocprofv3", "rocpd", "rocprof"), "mark steps with rocTX ranges named `step N`"),
    "xplane": "mark steps: jax.profiler.StepTraceAnnotation, or tf.profiler.experimental.Trace with step_num",
}
# Formats that `ringscope cut` can cut.
_CUT = ("nsys-sqlite", "nvprof-sqlite")
_UNITS = {"step": "steps", "batch": "batches"}
_WITH_NVTX = "mark steps with NVTX ranges named `step N`, as ringscope record does"


def starts_inside(measured: GpuMeasures, where: str) -> Doubt:
    return Doubt(
        "start-up-inside-window",
        f"for {numbers.share((measured.startup_ns or 0) / measured.span_ns)} of the window the GPU waits while a "
        "process starts: the process creates its GPU context, loads, compiles or tunes kernels, or captures graphs. "
        "No finding counts that time",
        "record from the steady part of the run on",
        (f"{where}/ledger_ns/idle_launch", f"{where}/startup_ns"),
    )


def _mark_steps(steps: Steps, recorded: str) -> str:
    """Advice: mark the steps or, if the recording has marks, record more steps."""
    if steps.marked:
        return f"record several {_UNITS[steps.unit]} in a row: the recording holds only one, or an incomplete one"
    return MARK_STEPS.get(recorded, _WITH_NVTX)


def steps_by_period(steps: Steps, where: str, recorded: str) -> Doubt:
    return Doubt(
        "steps-by-period",
        "the recording has no marks of steps, so a step is taken to be the sequence of kernels that repeats: it may "
        "be one optimiser update, a part of one, or several",
        _mark_steps(steps, recorded),
        (f"{where}/steps",),
    )


def several_steps_each(steps: int, where: str) -> Doubt:
    return Doubt(
        "several-steps-each",
        f"the numbers of the marks of steps rise by {steps}, so each step here holds {steps} steps of the training (as "
        "with steps_per_execution in Keras): what is counted or timed per step is of all of them",
        f"divide numbers per step by {steps}, or record with one step per mark",
        (f"{where}/steps",),
    )


def steps_cover_little(measured: GpuMeasures, where: str) -> Doubt:
    whole = (measured.capture or {})["span_ns"]
    units = "batches" if measured.steps.unit == "batch" else "steps"
    return Doubt(
        "steps-cover-little",
        f"the {measured.steps.count} {units} take {numbers.duration(measured.span_ns)}, "
        f"{numbers.share(measured.span_ns / whole)} of the recording's {numbers.duration(whole)}: findings "
        "describe that part only, as do all numbers except the ledger of the whole recording",
        "measure all of it with --window capture",
        (f"{where}/window", f"{where}/capture"),
    )


def steps_refused(steps: Steps, where: str, recorded: str) -> Doubt:
    return Doubt(
        "steps-refused",
        f"no {_UNITS[steps.unit]} found: {steps.refused}; the window is the whole capture, warm-up included, and it "
        "is unknown which copies bring input",
        _mark_steps(steps, recorded),
        (f"{where}/steps", f"{where}/window", f"{where}/ledger_ns/idle_feed"),
    )


_FILLS = 0.3  # the text names a call or range of the host if it fills at least this share of a gap


def where_kernels_lie(measured: GpuMeasures) -> str:
    """Words for the places of kernels in the window: the longest gaps between kernels, or in how many tenths of the
    window kernels start."""
    rest, tenths = measured.rest, measured.kernels.in_tenths
    if not (measured.kernels.count or measured.kernels.graph_launches):
        return "no kernel is in the recording"
    if rest is not None:
        before = rest.before_kernels_ns
        told = [f"{numbers.duration(before)} pass before the first kernel"] if before else []
        if rest.gaps_ns and 3 * rest.gaps_ns[0] > before:
            gap = next(one for one in measured.idle_gaps if one.ns == rest.gaps_ns[0])
            filled = [one["name"] for one in gap.host if one["ns"] >= _FILLS * gap.ns]
            meanwhile = f" ({filled[0]} under way)" if filled else ""
            also = "".join(f" and one of {numbers.duration(ns)}" for ns in rest.gaps_ns[1:] if 3 * ns > gap.ns)
            idle = sum(ns or 0 for owner, ns in measured.ledger_ns.items() if owner.startswith("idle_"))
            named = sum(ns for ns in rest.gaps_ns if 3 * ns > gap.ns)
            largest = 2 * named > idle
            what = "most of the idle time is a gap" if largest else "the longest time without work is a gap"
            told.append(f"{what} of {numbers.duration(gap.ns)}{meanwhile}{also}")
        return ", and ".join(told)
    parts = sum(1 for one in tenths if one)
    if parts == 1:
        return "all kernels start in one tenth of the window"
    most = ", most of them in one tenth" if 2 * max(tenths, default=0) >= max(sum(tenths), 1) else ""
    return f"kernels start in {parts} tenths of the window{most}"


def mostly_no_training(measured: GpuMeasures, recorded: str, where: str) -> Doubt:
    unit = measured.steps.unit
    other = "or the wait for requests" if unit == "batch" else "as well as the training's"
    part = "part" if unit == "batch" else "part of the training"
    return Doubt(
        "mostly-no-training",
        f"no {_UNITS[unit]} were found, and {where_kernels_lie(measured)}: idle time may be the program's start "
        f"{other}",
        f"record only the steady {part}" + (", or cut it out with ringscope cut" if recorded in _CUT else ""),
        (f"{where}/ledger_ns", f"{where}/window"),
    )


def warm_up_inside(steps: Steps, where: str) -> Doubt:
    return Doubt(
        "warm-up-inside-window",
        "the window is the whole capture, and so includes "
        f"{numbers.counted(steps.warm_up + steps.partial, 'step')} of the warm-up or cut short at its ends",
        "measure with --window steps" if steps.count else f"record more {_UNITS[steps.unit]}",
        (f"{where}/window_ns", f"{where}/ledger_ns"),
    )


def breaks_inside(steps: int, where: str, recorded: str) -> Doubt:
    return Doubt(
        "breaks-inside-window",
        f"{numbers.counted(steps, 'step')} in the window took over 3 times the median, or held a pause (often an "
        "evaluation or a checkpoint): the ledger includes this time, the percentiles and the table of steps do not",
        "cut out a part without such steps: ringscope cut --steps A:B"
        if recorded in _CUT
        else "record a part without such steps",
        (f"{where}/ledger_ns",),
    )


# The function that makes a range in the recording, by framework, for programs without Keras.
_RANGES = {
    "pytorch": "torch.profiler.record_function",
    "jax": "jax.profiler.TraceAnnotation",
    "hip": "roctxRangePush",
    "cuda": "nvtxRangePush",
    "onnxruntime": "nvtxRangePush",
}


def feed_or_host(where: str, framework: str | None) -> Doubt:
    ranges = _RANGES.get(framework or "")
    loader = " (a DataLoader already has ranges)" if framework == "pytorch" else ""
    return Doubt(
        "feed-or-host",
        "the recording does not mark when the host waits for input, so idle: feed includes the time in which the host "
        f"prepares the step{'' if ranges else ' (some 2.5 ms in Keras)'}; a run whose input lies on the GPU from the "
        "start shows this time as idle: launch between two steps",
        f"record with a range named `wait input` around the call that fetches the batch, by {ranges}{loader}"
        if ranges
        else "record with ringscope record, which marks the wait with ranges named `wait input` (not for workers of a "
        "parameter server, which fetch their own batches)",
        (f"{where}/ledger_ns/idle_feed", f"{where}/feed_gaps"),
    )


def copy_order_unknown(where: str, recorded: str) -> Doubt:
    return Doubt(
        "copy-order-unknown",
        "it is unknown which step an input copy feeds: idle: feed is not given, and that time counts under the next "
        "cause that applies",
        "record from the start of the training"
        + (
            ""
            if recorded == "kineto"
            else ", or put NVTX ranges named `batch N` around the calls that copy the batch of step N"
        ),
        (f"{where}/ledger_ns/idle_feed", f"{where}/feed_gaps", f"{where}/input_copies"),
    )


def sync_upper_bound(where: str) -> Doubt:
    return Doubt(
        "sync-upper-bound",
        "idle: sync may be too high: in the gap between two steps, the time before a device-to-host copy counts as "
        "waiting for that copy, but the host may have been late for another reason",
        "fetch losses and metrics less often in the training loop, and see whether idle: sync falls",
        (f"{where}/ledger_ns/idle_sync",),
    )
