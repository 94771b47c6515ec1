"""Doubts about data that a recording lacks or has wrong. `where` is the JSON pointer of the GPU, such as `/gpus/0`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ground import numbers
from ..model.measures import CLASSES
from ..model.operations import Arithmetic, Launches
from ..model.timeline import Doubt
from .recordings import CAPTURE_REMEDY, LOSES_LESS, LOSES_LESS_ELSE, RECORD_AGAIN, RECORD_AGAIN_ELSE
from .steps import MARK_STEPS

# How to record everything, by the recording's format; other formats: nsys.
_RECORD_ALL = {
    "kineto": "record with ProfilerActivity.CPU and ProfilerActivity.CUDA",
    **dict.fromkeys(("rocprofv3", "rocpd"), "record with rocprofv3 --runtime-trace"),
    "rocprof": "record with rocprof --sys-trace",
    "xplane": "record with JAX's or TensorFlow's profiler and its defaults (host_tracer_level=2, "
    "device_tracer_level=1), and give its .xplane.pb",
}
# Formats of AMD's profilers.
_AMD = ("rocprof", "rocprofv3", "rocpd")
_COLLECTIVE_SIZES = {
    "kineto": "record with a newer PyTorch, which writes the size of each NCCL call",
    **dict.fromkeys(_AMD, "record with PyTorch's profiler, which writes the size of each RCCL call"),
}
# How to record the kernels of CUDA graphs, by the recording's format; other formats: nsys.
_RECORD_GRAPHS = {
    "kineto": "record without graphs (vLLM: enforce_eager, SGLang: --disable-cuda-graph, torch.compile: another "
    "mode), or with nsys --cuda-graph-trace=node (AMD: rocprofv3 --runtime-trace)",
    **dict.fromkeys(_AMD, "record without graphs (not all versions trace HIP graphs), or with a newer ROCm"),
}


def merged(doubts: Iterable[Doubt]) -> list[Doubt]:
    """Merge equal doubts into one with all their places, in order of appearance."""
    first: dict[tuple[str, str, str], Doubt] = {}
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for doubt in doubts:
        words = (doubt.code, doubt.text, doubt.next)
        first.setdefault(words, doubt)
        places.setdefault(words, {}).update(dict.fromkeys(doubt.where))
    return [replace(doubt, where=tuple(places[words])) for words, doubt in first.items()]


def collective_bytes_unknown(where: str, recorded: str) -> Doubt:
    return Doubt(
        "collective-bytes-unknown",
        "the recording does not say how many bytes each collective moved, so no bus bandwidth is given",
        _COLLECTIVE_SIZES.get(
            recorded,
            "record Horovod's NVTX ranges, which hold the sizes (nsys profile --trace=cuda,nvtx), or export NCCL's "
            "NVTX ranges with nsys export --include-blobs=true",
        ),
        (f"{where}/collectives/bytes_per_step", f"{where}/collectives/bus_gb_per_s"),
    )


def operators_in_graphs(hidden: float, where: str) -> Doubt:
    return Doubt(
        "operators-in-graphs",
        f"kernels that XLA's CUDA graphs launch take {numbers.share(hidden)} of the window without a range that tells "
        "their operator: tables show these kernels by XLA's name, or without a name",
        "record with XLA_FLAGS=--xla_gpu_enable_command_buffer= : then every operator has its range, but a step "
        "takes longer",
        (f"{where}/operators", f"{where}/layers"),
    )


def flops_partly_told(measured: Arithmetic, where: str, recorded: str) -> Doubt:
    return Doubt(
        "flops-partly-told",
        f"the recording gives the shapes for {numbers.share(measured.matrix_share)} of the time of convolutions "
        "and matrix products: the true FLOP/s and MFU are at least as high as given",
        "XLA_FLAGS=--xla_gpu_enable_command_buffer= keeps the names of kernels in CUDA graphs; custom kernels have no "
        "names"
        if recorded == "xplane"
        else "record eagerly, without CUDA graphs and torch.compile, with record_shapes=True",
        (f"{where}/arithmetic",),
    )


def no_peak(measured: Arithmetic, where: str) -> Doubt:
    return Doubt(
        "peak-unknown",
        f"{measured.mfu_unknown}, so MFU and the limit by compute or memory are not given",
        "divide the FLOP/s (flops_per_s) by the figure of the GPU's data sheet for this number type",
        (f"{where}/arithmetic/mfu",),
    )


def copy_too_fast(direction: str, moved: int, took_ns: int, where: str, recorded: str) -> Doubt:
    return Doubt(
        "copy-too-fast",
        f"by the recording a {direction} copy of {numbers.size(moved)} took {numbers.duration(took_ns)}, which no "
        "link or memory can do: do not trust the times of these copies",
        RECORD_AGAIN.get(recorded, RECORD_AGAIN_ELSE),
        (f"{where}/copies/{direction}/gb_per_s", f"{where}/ledger_ns/{direction}", f"{where}/busy_ns/{direction}"),
    )


def copy_direction_unknown(count: int, moved: int, where: str) -> Doubt:
    """`moved`: the bytes of the `count` copies."""
    return Doubt(
        "copy-direction-unknown",
        f"the recording does not tell the direction of {numbers.counted(count, 'copy')} ({numbers.size(moved)}), "
        "counted as copying on the GPU",
        "record again, with a newer profiler if there is one",
        tuple(f"{where}/{part}/d2d" for part in ("copies", "ledger_ns", "busy_ns")),
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
        f"the recording has no {table}: the time of these operations counts as idle: unknown, and no cause of idle "
        "time is known",
        _RECORD_ALL.get(recorded, "record with nsys profile --trace=cuda,nvtx"),
        (f"{where}/ledger_ns/idle_unknown",),
    )


def no_api_rows(calls: int, where: str, recorded: str) -> Doubt:
    """calls: number of API calls in the recording, none of which is known to have launched an operation."""
    api = "HIP" if recorded in _AMD else "CUDA"
    have = f"has {calls:,} {api} API calls, and none tells what it launched" if calls else f"has no {api} API calls"
    record = _RECORD_ALL.get(
        recorded, "record with nsys profile --trace=cuda, or nvprof without --profile-api-trace none"
    )
    return Doubt(
        "no-api-rows",
        f"the recording {have}: the causes of idle are unknown",
        "give the recording as the profiler wrote it, with the correlation of calls and operations"
        if calls
        else record,
        (f"{where}/ledger_ns/idle_unknown", f"{where}/kernels/launch_latency_ns"),
    )


def off_clock(pid: int, where: str, recorded: str) -> Doubt:
    return Doubt(
        "host-clock",
        f"the times of API calls or NVTX ranges and of kernels of process {pid} come from different clocks, so these "
        "calls and ranges are left out",
        RECORD_AGAIN.get(recorded, RECORD_AGAIN_ELSE),
        (f"{where}/ledger_ns/idle_unknown", f"{where}/kernels/launch_latency_ns"),
    )


_MAY_HAVE_RUN = "idle time in which these operations may have run counts as idle: unknown"


def launches_lost(launches: Launches, where: str, recorded: str) -> Doubt:
    graphs = (
        f", among them {launches.graphs_lost:,} of {launches.graphs:,} graph launches" if launches.graphs_lost else ""
    )
    then = f": {_MAY_HAVE_RUN}" if launches.told else ": no causes of idle time are given, and no finding uses them"
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
        f"somebody removed {numbers.share(launches.thinned / launches.count)} or more of the events from this file, "
        "as gaps in the profiler's numbering show: kernels that are not in the file ran in what seems idle, so no "
        "causes of idle time are given, and no finding rests on them",
        "give the trace as the profiler wrote it; to make it smaller, cut out a span of time with all of its events",
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels", f"{where}/launches"),
    )


def untimed(count: int, where: str, recorded: str) -> Doubt:
    return Doubt(
        "operations-untimed",
        f"{numbers.counted(count, 'operation')} with a launch call, but no usable start and end: {_MAY_HAVE_RUN}",
        LOSES_LESS.get(recorded, LOSES_LESS_ELSE),
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels"),
    )


def only_captures(launches: Launches, where: str) -> Doubt:
    return Doubt(
        "capture-recording",
        f"this is the capture of a CUDA graph: {launches.captured:,} of {launches.captured + launches.count:,} "
        "launches only added a kernel to the graph, and ran nothing",
        CAPTURE_REMEDY,
        (f"{where}/ledger_ns/idle_unknown", f"{where}/ledger_ns", f"{where}/kernels", f"{where}/launches"),
    )


def exchange_unknown(count: int, share: float, name: str, where: str) -> Doubt:
    """name: the one of the `count` kernels that takes most time. share: of the window, 0 to 1."""
    return Doubt(
        "exchange-unknown",
        f"judged by name, {numbers.counted(count, 'kernel')} counted as compute may exchange data between GPUs: "
        f"{numbers.share(share)} of the window; the longest is {name}",
        "if they move data between GPUs, add this time to the exposed collectives, and report the name in an issue",
        (f"{where}/ledger_ns/compute", f"{where}/ledger_ns/collective", f"{where}/collectives"),
    )


def calls_missing(operations: int, of: int, managed: int, where: str, recorded: str) -> Doubt:
    """managed: number of copies of CUDA's managed memory, which the driver starts without a call of the program."""
    pages = 2 * managed > operations
    whole = "record the whole run of the program, not a slice of it"
    why = f", {managed:,} of which move pages of CUDA's managed (unified) memory" if pages else ""
    return Doubt(
        "calls-missing",
        f"{operations:,} of {of:,} operations have no launch call in the recording{why}: the idle time before these "
        "operations counts as idle: unknown",
        "managed memory moves on page faults, without a call: prefetch the pages that the host or the GPU needs next "
        "(cudaMemPrefetchAsync)"
        if pages
        else _TELLS_CALLS.get(recorded, whole),
        (f"{where}/ledger_ns/idle_unknown",),
    )


# Formats that do not say which call launched an operation -> what to record instead.
_TELLS_CALLS = {
    "rocprof": "record with `rocprofv3 --runtime-trace --output-format json`, which tells the call of each operation"
}


def no_marks(where: str, recorded: str, *, operators: bool) -> Doubt:
    """operators: the recording has ranges of PyTorch's operators, so the profiler recorded all that the program has."""
    remedy = _RECORD_ALL.get(recorded, "record with ringscope record, or nsys profile --trace=cuda,nvtx")
    return Doubt(
        "no-marks",
        f"the recording has no {'marks' if operators else 'ranges'} of the host: steps are found without marks, and "
        "waiting for input cannot be seen",
        MARK_STEPS.get(recorded, remedy) if operators else remedy,
        (f"{where}/steps",),
    )


def several_processes(count: int, recordings: int, where: str, *, by_turns: bool) -> Doubt:
    """`recordings`: the number of recordings with these processes. `by_turns`: True if each recording of the GPU ends
    before the next one begins."""
    text = f"{count} processes used this GPU: its time is measured over all of them"
    if by_turns:
        text += ", though their recordings follow each other in time, as recordings of different runs do"
    alike = "give every rank its own GPU; if each has one (hosts or MIG instances may name theirs alike), "
    apart = "give one recording at a time" if recordings > 1 else "record each rank by itself"
    remedy = "give the recordings of one run" if by_turns else alike + apart
    return Doubt("several-processes-on-gpu", text, remedy, (where,))
