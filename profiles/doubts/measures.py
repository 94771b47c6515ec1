"""Doubts about measures. `where` is the JSON pointer of the GPU, such as `/gpus/0`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..ground import numbers
from ..model.measures import CLASSES, Arithmetic, GpuMeasures, Launches, Steps
from ..model.timeline import Doubt
from .recordings import CAPTURE_REMEDY, LOSES_LESS, LOSES_LESS_ELSE

# Values of collectives that need several ranks' recordings.
_ACROSS_RANKS = ("skew_ns", "waiting_ns", "transfer_ns", "bus_gb_per_s", "arrived_last_share", "by_turns_ns")
_ALL_RANKS = "give the recordings of all ranks"
# How steps are marked, by the format of the recording.
_MARK_STEPS = {
    "kineto": "call prof.step() after each step: torch.profiler then marks them `ProfilerStep#N`",
    **dict.fromkeys(("rocprofv3", "rocpd", "rocprof"), "mark steps with rocTX ranges named `step N`"),
    "xplane": "mark steps: jax.profiler.StepTraceAnnotation, or tf.profiler.experimental.Trace with step_num",
}
# What `ringscope cut` writes a smaller copy of.
_CUT = ("nsys-sqlite", "nvprof-sqlite")
_UNITS = {"step": "steps", "batch": "batches"}
_WITH_NVTX = "mark steps with NVTX ranges named `step N`, as ringscope record does"
# A way to record everything, by the recording's format; else nsys.
_RECORD_ALL = {
    "kineto": "record with ProfilerActivity.CPU and ProfilerActivity.CUDA",
    **dict.fromkeys(("rocprofv3", "rocpd"), "record with rocprofv3 --runtime-trace"),
    "rocprof": "record with rocprof --sys-trace",
}
# Formats of recordings of AMD's.
_AMD = ("rocprof", "rocprofv3", "rocpd")
_COLLECTIVE_SIZES = {
    "kineto": "record with a newer PyTorch, which writes the size of each NCCL call",
    **dict.fromkeys(_AMD, "PyTorch's profiler writes the size of each call of RCCL"),
}
_ONE_CLOCK = "record the ranks at the same time, with nsys, on hosts with one clock"


# What records the kernels of graphs, by the format of the recording; else nsys.
_RECORD_GRAPHS = {
    "kineto": "record without graphs (vLLM: enforce_eager, SGLang: --disable-cuda-graph, torch.compile: another mode), "
    "or with nsys --cuda-graph-trace=node, on AMD rocprofv3 --runtime-trace",
    **dict.fromkeys(_AMD, "record without graphs (HIP's are not traced by all versions), or with a newer ROCm"),
}


def merged(doubts: Iterable[Doubt]) -> list[Doubt]:
    """Each doubt once, with all the places it touches, in order of appearance."""
    first: dict[tuple[str, str, str], Doubt] = {}
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for doubt in doubts:
        words = (doubt.code, doubt.text, doubt.next)
        first.setdefault(words, doubt)
        places.setdefault(words, {}).update(dict.fromkeys(doubt.where))
    return [replace(doubt, where=tuple(places[words])) for words, doubt in first.items()]


def clocks_unchecked(where: tuple[str, ...]) -> Doubt:
    text = "the recordings' clocks could not be checked against each other: they share too few collectives"
    return Doubt("clock-residual", text, _ONE_CLOCK, where)


def clocks_apart(residual_ns: int, where: tuple[str, ...]) -> Doubt:
    text = (
        f"common ends of collectives are {residual_ns / 1e3:.0f} µs apart: times between ranks are no more exact than "
        "that"
    )
    return Doubt("clock-residual", text, _ONE_CLOCK, where)


def clocks_shifted(residual_ns: int, where: tuple[str, ...]) -> Doubt:
    text = (
        "the recordings' starts in UTC are not known, or do not fit the ends of their collectives: they were shifted "
        f"until these met, to {residual_ns / 1e3:.1f} µs"
    )
    return Doubt("clock-residual", text, _ONE_CLOCK, where)


def other_ranks_missing(those: str, shared: Sequence[int]) -> Doubt:
    """`those`: which recordings there are. `shared`: the GPUs whose collectives were matched with another's."""
    return Doubt(
        "ranks-missing",
        f"{those}: collectives also waited for ranks that were not recorded: the waiting given is a minimum, the "
        "transfer a maximum, the bus bandwidth a minimum, and an unrecorded rank may be the last",
        _ALL_RANKS,
        tuple(f"/gpus/{gpu}/collectives" for gpu in shared),
    )


def no_other_rank(those: str, alone: Sequence[int]) -> Doubt:
    return Doubt(
        "ranks-missing",
        f"{those}: how long collectives waited for others, and how long they moved data, is unknown",
        _ALL_RANKS,
        tuple(f"/gpus/{gpu}/collectives/{name}" for gpu in alone for name in _ACROSS_RANKS),
    )


def starts_inside(measured: GpuMeasures, where: str) -> Doubt:
    return Doubt(
        "start-up-inside-window",
        f"{numbers.share((measured.startup_ns or 0) / measured.span_ns)} of the window the GPU waits for a process "
        "that starts: it makes its context, loads, compiles or tunes kernels, or captures graphs. No finding "
        "counts that time",
        "record from the steady part of the run on",
        (f"{where}/ledger_ns/idle_launch", f"{where}/startup_ns"),
    )


def _mark_steps(steps: Steps, recorded: str) -> str:
    """Advice on how to record steps: by marks, unless there are some already."""
    if steps.marked:
        return f"record several {_UNITS[steps.unit]} in a row: only one is marked, or it is cut short"
    return _MARK_STEPS.get(recorded, _WITH_NVTX)


def steps_by_period(steps: Steps, where: str, recorded: str) -> Doubt:
    return Doubt(
        "steps-by-period",
        "the steps are repetitions in the kernels, found without marks: one may be an optimiser update, a part of "
        "one, or several",
        _mark_steps(steps, recorded),
        (f"{where}/steps",),
    )


def steps_cover_little(measured: GpuMeasures, where: str) -> Doubt:
    whole = (measured.capture or {})["span_ns"]
    units = "batches" if measured.steps.unit == "batch" else "steps"
    return Doubt(
        "steps-cover-little",
        f"the {measured.steps.count} {units} take {numbers.duration(measured.span_ns)}, "
        f"{numbers.share(measured.span_ns / whole)} of the recording's {numbers.duration(whole)}: findings and "
        "numbers describe that part only",
        "measure all of it with --window capture",
        (f"{where}/window", f"{where}/capture"),
    )


def collective_bytes_unknown(where: str, recorded: str) -> Doubt:
    return Doubt(
        "collective-bytes-unknown",
        "the recording does not say how many bytes each collective of the steps moved: no bus bandwidth",
        _COLLECTIVE_SIZES.get(
            recorded,
            "Horovod's NVTX ranges say it (nsys --trace=cuda,nvtx), and NCCL's in nsys export --include-blobs=true",
        ),
        (f"{where}/collectives/bytes_per_step", f"{where}/collectives/bus_gb_per_s"),
    )


def operators_in_graphs(hidden: float, where: str) -> Doubt:
    return Doubt(
        "operators-in-graphs",
        f"kernels that XLA's CUDA graphs launch take {numbers.share(hidden)} of the window without a range that tells "
        "their operator: tables have them under XLA's name of the kernel, or under none",
        "record with XLA_FLAGS=--xla_gpu_enable_command_buffer= : every operator has its range then, and a step takes "
        "longer",
        (f"{where}/operators", f"{where}/layers"),
    )


def flops_partly_told(measured: Arithmetic, where: str, recorded: str) -> Doubt:
    return Doubt(
        "flops-partly-told",
        f"the recording tells the shapes behind {numbers.share(measured.matrix_share)} of the time of convolutions and "
        "matrix products: FLOP/s and MFU are at least what is given",
        "XLA_FLAGS=--xla_gpu_enable_command_buffer= keeps the names of what CUDA graphs run; your own kernels have none"
        if recorded == "xplane"
        else "record eagerly, without CUDA graphs and torch.compile, with record_shapes=True",
        (f"{where}/arithmetic",),
    )


def no_peak(measured: Arithmetic, where: str) -> Doubt:
    return Doubt(
        "peak-unknown",
        f"{measured.mfu_unknown}: no MFU, and no limit by computing or memory",
        "divide flops_per_s by what the GPU's data sheet says for the type",
        (f"{where}/arithmetic/mfu",),
    )


def copy_too_fast(direction: str, moved: int, took_ns: int, where: str) -> Doubt:
    return Doubt(
        "copy-too-fast",
        f"the recording says that a {direction} copy of {numbers.size(moved)} took {numbers.duration(took_ns)}, faster "
        "than any link or memory: do not trust the times of these copies",
        "record again, with nsys rather than nvprof",
        (f"{where}/copies/{direction}/gb_per_s", f"{where}/ledger_ns/{direction}", f"{where}/busy_ns/{direction}"),
    )


def graph_level_recording(launches: int, where: str) -> Doubt:
    return Doubt(
        "graph-level-recording",
        f"{launches} CUDA graph launches are recorded as a whole: their kernels are neither counted nor named, and "
        "collectives, copies, memsets and pauses inside them count as compute",
        "record with --cuda-graph-trace=node",
        (f"{where}/kernels", f"{where}/copies", *(f"{where}/ledger_ns/{name}" for name in CLASSES)),
    )


def class_not_recorded(table: str, where: str, recorded: str) -> Doubt:
    return Doubt(
        "class-not-recorded",
        f"the recording has no {table}, so their time counts as idle_unknown, and no cause of idle time is known",
        _RECORD_ALL.get(recorded, "record with nsys --trace=cuda,nvtx"),
        (f"{where}/ledger_ns/idle_unknown",),
    )


def no_api_rows(where: str, recorded: str) -> Doubt:
    return Doubt(
        "no-api-rows",
        f"the recording has no {'HIP' if recorded in _AMD else 'CUDA'} API calls: the causes of idle are unknown",
        _RECORD_ALL.get(recorded, "record with nsys --trace=cuda, or nvprof without --profile-api-trace none"),
        (f"{where}/ledger_ns/idle_unknown", f"{where}/kernels/launch_latency_ns"),
    )


def off_clock(pid: int, where: str) -> Doubt:
    return Doubt(
        "host-clock",
        f"the API calls of process {pid} are on another clock than its kernels: they are left out",
        "record again, with nsys rather than nvprof",
        (f"{where}/ledger_ns/idle_unknown", f"{where}/kernels/launch_latency_ns"),
    )


_MAY_HAVE_RUN = "idle time in which they may have run is idle_unknown"


def launches_lost(launches: Launches, where: str, recorded: str) -> Doubt:
    graphs = (
        f", among them {launches.graphs_lost:,} of {launches.graphs:,} graph launches" if launches.graphs_lost else ""
    )
    then = f": {_MAY_HAVE_RUN}" if launches.told else ": idle time has no causes, and nothing is concluded from it"
    mostly_graphs = 2 * launches.graphs_lost > launches.lost
    return Doubt(
        "launches-lost",
        f"{launches.lost:,} of {launches.count:,} launches have no operation in the recording{graphs}{then}",
        _RECORD_GRAPHS.get(
            recorded, "start recording before the graphs are made, or record with --cuda-graph-trace=graph"
        )
        if mostly_graphs
        else LOSES_LESS.get(recorded, LOSES_LESS_ELSE),
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels", f"{where}/launches"),
    )


def thinned(launches: Launches, where: str) -> Doubt:
    return Doubt(
        "events-left-out",
        f"somebody left {numbers.share(launches.thinned / launches.count)} or more of the events out of this file, as "
        "the holes in the profiler's numbers of them tell: what seems idle is full of kernels that are not in it, "
        "idle time has no causes, and nothing is concluded from it",
        "give the trace as the profiler wrote it, or cut out a span of time with all that it holds",
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels", f"{where}/launches"),
    )


def untimed(count: int, where: str, recorded: str) -> Doubt:
    return Doubt(
        "operations-untimed",
        f"{count:,} operations have launch calls, but no usable times: {_MAY_HAVE_RUN}",
        LOSES_LESS.get(recorded, LOSES_LESS_ELSE),
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels"),
    )


def only_captures(launches: Launches, where: str) -> Doubt:
    return Doubt(
        "capture-recording",
        f"a capture: {launches.captured:,} of {launches.captured + launches.count:,} launches only went into a graph, "
        "and nothing ran",
        CAPTURE_REMEDY,
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels", f"{where}/launches"),
    )


def exchange_unknown(count: int, share: float, name: str, where: str) -> Doubt:
    """`name`: that of the kernel which takes longest of them."""
    return Doubt(
        "exchange-unknown",
        f"kernels named like an exchange count as compute: {count:,}, {numbers.share(share)} of the window, above all "
        f"{name}",
        "where they move data between GPUs, add this time to the exposed collectives, and tell us the name",
        (f"{where}/ledger_ns/compute", f"{where}/ledger_ns/collective", f"{where}/collectives"),
    )


def calls_missing(operations: int, of: int, managed: int, where: str) -> Doubt:
    """managed: copies of managed memory, which the driver makes by itself."""
    pages = 2 * managed > operations
    why = f", {managed:,} of them pages of managed memory" if pages else ""
    return Doubt(
        "calls-missing",
        f"{operations:,} of {of:,} operations have no launch call in the recording{why}: the idle time that they end "
        "is idle_unknown",
        "managed memory moves when it is touched, without a call: prefetch to each side what it needs next "
        "(cudaMemPrefetchAsync)"
        if pages
        else "record the whole run of the program, not a slice of it",
        (f"{where}/ledger_ns/idle_unknown",),
    )


def no_marks(where: str, recorded: str) -> Doubt:
    return Doubt(
        "no-marks",
        "the recording has no ranges of the host: steps are found without marks, waiting for input cannot be seen",
        _RECORD_ALL.get(recorded, "record with ringscope record, or nsys --trace=cuda,nvtx"),
        (f"{where}/steps",),
    )


def steps_refused(steps: Steps, where: str, recorded: str) -> Doubt:
    return Doubt(
        "steps-refused",
        f"no {_UNITS[steps.unit]}: {steps.refused}; the window is the capture, warm-up included, and input copies are "
        "not known",
        _mark_steps(steps, recorded),
        (f"{where}/steps", f"{where}/window", f"{where}/ledger_ns/idle_feed"),
    )


def where_kernels_lie(measured: GpuMeasures) -> str:
    """Words for the distribution of kernels: the tenths of the window that have any, or the longest gap."""
    tenths = measured.kernels.in_tenths
    if measured.rest is not None:
        gap = measured.idle_gaps[0]
        meanwhile = f" ({gap.host[0]['name']} under way)" if gap.host else ""
        also = "".join(f" and one of {numbers.duration(ns)}" for ns in measured.rest.gaps_ns[1:] if 3 * ns > gap.ns)
        return f"most of the idle time is one gap of {numbers.duration(gap.ns)}{meanwhile}{also}"
    most = ", most of them in one" if 2 * max(tenths, default=0) >= max(sum(tenths), 1) else ""
    return f"kernels start in {sum(1 for one in tenths if one)} tenths of the recording{most}"


def mostly_no_training(measured: GpuMeasures, recorded: str, where: str) -> Doubt:
    unit = measured.steps.unit
    other = "or waiting for requests" if unit == "batch" else "as well as the training's"
    part = "part" if unit == "batch" else "part of the training"
    return Doubt(
        "mostly-no-training",
        f"no {_UNITS[unit]} were found, and {where_kernels_lie(measured)}: idle time may be the program's start "
        f"{other}",
        f"record less, from the steady {part}" + (", or cut it out with ringscope cut" if recorded in _CUT else ""),
        (f"{where}/ledger_ns", f"{where}/window"),
    )


def warm_up_inside(steps: Steps, where: str) -> Doubt:
    return Doubt(
        "warm-up-inside-window",
        "the window is the capture, with warm-up and what is cut short at its ends (steps: "
        f"{steps.warm_up + steps.partial})",
        "measure with --window steps" if steps.count else f"record more {_UNITS[steps.unit]}",
        (f"{where}/window_ns", f"{where}/ledger_ns"),
    )


def breaks_inside(steps: int, where: str, recorded: str) -> Doubt:
    return Doubt(
        "breaks-inside-window",
        f"{steps} steps in the window are over 3 times the median (evaluation, checkpoints), or cut by a pause: their "
        "time is in the ledger, not in the percentiles and the rows of the steps",
        "cut out the part between them: ringscope cut --steps A:B"
        if recorded in _CUT
        else "record the part between them",
        (f"{where}/ledger_ns",),
    )


def peers_or_launch(share: float, where: str) -> Doubt:
    return Doubt(
        "peers-or-launch",
        f"{numbers.share(share)} of the window the GPU waits for the launch of a collective, and nothing tells whether "
        "this rank's host was late with it or another rank: it stands under idle_launch",
        "record all ranks and give their recordings together, with NVTX ranges (nsys --trace=cuda,nvtx)",
        (f"{where}/ledger_ns/idle_launch", f"{where}/ledger_ns/idle_peers"),
    )


def several_processes(count: int, where: str) -> Doubt:
    return Doubt(
        "several-processes-on-gpu",
        f"{count} processes used this GPU: its time is measured over all of them",
        "give every rank a GPU of its own",
        (where,),
    )


# How to put a range around the calls that fetch a batch, in programs without Keras.
_RANGES = {
    "pytorch": "torch.profiler.record_function",
    "jax": "jax.profiler.TraceAnnotation",
    "hip": "roctxRangePush",
    "cuda": "nvtxRangePush",
    "onnxruntime": "nvtxRangePush",
}


def feed_or_host(where: str, framework: str | None) -> Doubt:
    ranges = _RANGES.get(framework or "")
    loader = " (a DataLoader has ranges of its own)" if framework == "pytorch" else ""
    return Doubt(
        "feed-or-host",
        "without ranges in which the host waits for its input, idle_feed includes the host's own dispatch of the step"
        f"{'' if ranges else ' (some 2.5 ms in Keras)'}; compare with the idle_launch of the batch gaps of a run "
        f"{'whose input lies on the GPU from the start' if ranges else 'that is fed on the GPU'}",
        f"record with a range named `wait input` around what fetches the batch, by {ranges}{loader}"
        if ranges
        else "record with ringscope record, whose `wait input` ranges tell the two apart; not the workers of a "
        "parameter server, which take their batches themselves",
        (f"{where}/ledger_ns/idle_feed", f"{where}/feed_gaps"),
    )


def copy_order_unknown(where: str, recorded: str) -> Doubt:
    return Doubt(
        "copy-order-unknown",
        "it is unknown which step an input copy feeds: idle_feed is null, and its time counts under the next cause "
        "that applies",
        "record from the start of the training"
        + (
            "" if recorded == "kineto" else ", or mark what copies the batch of step N with NVTX ranges named `batch N`"
        ),
        (f"{where}/ledger_ns/idle_feed", f"{where}/feed_gaps", f"{where}/input_copies"),
    )


def sync_upper_bound(where: str) -> Doubt:
    return Doubt(
        "sync-upper-bound",
        "the part of idle_sync that lies in batch gaps before a device-to-host copy is an upper bound: the host may "
        "have been late for another reason than waiting for that copy",
        "fetch losses and metrics less often in the training loop, and compare",
        (f"{where}/ledger_ns/idle_sync",),
    )
