"""A generated training run (training.py) as tables with the columns of a Timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from profiles.model.timeline import Recording, Timeline, make

from .training import AHEAD_NS, CALL_NS, HIDDEN_NS, Shape

EPOCH_NS = 1_700_000_000_123_456_789  # when the session began, UTC
COMPUTE_STREAM, COLLECTIVE_STREAM, H2D_STREAM, OTHER_STREAM = 13, 20, 14, 15
COLLECTIVE = "ncclKernel_AllReduce_RING_LL_Sum_float"
MANGLED = [*(f"_Z9kernel_{k:02d}Pfi" for k in range(40)), COLLECTIVE]
NAMES = [*(f"kernel_{k:02d}(float*, int)" for k in range(40)), COLLECTIVE]
LAUNCH, COPY, SET = CALLS = ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"]
GET_NEXT = "#edge_name=edge_3_IteratorGetNext#"
DOMAINS = ["ringscope", "TSL"]
KINDS, MEMORIES = ["h2d", "d2h", "p2p", "d2d"], ["pageable", "device"]
CBIDS = {LAUNCH: 211, COPY: 41, SET: 51}
H2D_BYTES, D2D_BYTES, P2P_BYTES, MEMSET_BYTES, D2H_BYTES = 32 * 224 * 224 * 3 * 4, 65536, 1 << 20, 4096, 8
COPIES = [  # kind, bytes, source and destination memory, and beside which kernel of the step (as a share)
    ("d2d", D2D_BYTES, "device", "device", 0.25),
    ("d2h", D2H_BYTES, "device", "pageable", 0.4),
    ("p2p", P2P_BYTES, "device", "device", 0.5),
]

Tables = dict[str, pd.DataFrame]
Columns = dict[str, np.ndarray]  # of one table; texts as their places in a list


def chunks(shape: Shape, gpus: range | None = None, rows: int = 1 << 19) -> Iterator[Tables]:
    """The run as tables with the Timeline's columns: some steps of all `gpus` at a time, about `rows` kernels each."""
    gpus = range(shape.gpus) if gpus is None else gpus
    per_chunk = max(1, rows // ((shape.kernels + 1) * len(gpus)))
    for first in range(0, shape.steps, per_chunk):
        parts = [_steps_of(shape, gpu, np.arange(first, min(first + per_chunk, shape.steps))) for gpu in gpus]
        yield {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}


def timeline(shape: Shape, gpus: range | None = None) -> Timeline:
    """The whole run, as a perfect reader would read its recording."""
    parts = list(chunks(shape, gpus))
    tables = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    seen = range(shape.gpus) if gpus is None else gpus
    rank = {"rank": seen[0] * shape.processes // shape.gpus, "rank_source": "marks"} if len(seen) == 1 else {}
    recording = Recording("generated", "nsys-sqlite", "generated", origin_utc_ns=EPOCH_NS, **rank)  # type: ignore[arg-type]
    return make(recording, {**tables, "devices": devices(seen)})


def devices(gpus: range) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "device": np.array(gpus, dtype=np.int32),
            "uuid": [f"GPU-{gpu:08x}-0000-0000-0000-000000000000" for gpu in gpus],
            "bus_id": [f"0000:{gpu:02x}:00.0" for gpu in gpus],
            "name": "NVIDIA Generated",
        }
    )


def _steps_of(shape: Shape, gpu: int, steps: np.ndarray) -> Tables:
    """The tables of some steps of one GPU. Launch calls come from three threads, so that none overlap on one."""
    starts_ns = shape.step_starts_ns()
    copy_start = starts_ns[steps] + shape.feeds_ns()[steps]
    copy_end = copy_start + shape.copy_ns(gpu)[steps]
    late = shape.late_steps()[steps, None]
    starts = np.where(late, shape.kernel_starts_ns(gpu), shape.kernel_starts_ns(gpu, late=False))
    kernel_start = copy_end[:, None] + starts
    kernel_end = kernel_start + np.where(late, shape.durations_ns(gpu), shape.durations_ns(gpu, late=False))
    hidden = shape.hidden_ns - gpu * shape.skew_ns
    collective_start = kernel_end[:, -1] - hidden
    collective_end = collective_start + shape.collective_ns - gpu * shape.skew_ns + shape.waiting_ns(gpu)[steps]
    pid, calls_per_step = shape.pid(gpu), shape.kernels + 8
    local = gpu % (shape.gpus // shape.processes)
    first_id = (steps * (shape.gpus // shape.processes) + local) * calls_per_step + 1
    ids = first_id[:, None] + np.arange(shape.kernels)
    after = first_id + shape.kernels

    def operation(start: np.ndarray, end: np.ndarray, stream: int, correlation: np.ndarray) -> Columns:
        times = {"start_ns": start.ravel(), "end_ns": end.ravel(), "correlation": correlation.ravel()}
        where = {"device": np.int32(gpu), "context": np.int32(1), "stream": np.int32(stream)}
        return times | _alike(start.size, **where, pid=pid, graph_node=0)

    kernels = operation(kernel_start, kernel_end, COMPUTE_STREAM, ids)
    kernels["name"] = np.tile(np.arange(shape.kernels) % 40, len(steps))
    reduces = operation(collective_start, collective_end, COLLECTIVE_STREAM, after)
    reduces["name"] = np.full(len(steps), 40)
    copies = [_copy(operation(copy_start, copy_end, H2D_STREAM, after + 1), "h2d", H2D_BYTES, "pageable", "device")]
    for index, (kind, size, source, target, place) in enumerate(COPIES):
        if kind == "p2p" and shape.gpus == 1:
            continue
        start = kernel_start[:, int(place * shape.kernels)] + 2_000
        rows = operation(start, start + HIDDEN_NS, OTHER_STREAM, after + 2 + index)
        peer = (gpu, (gpu + 1) % shape.gpus) if kind == "p2p" else (-1, -1)
        copies.append(_copy(rows, kind, size, source, target, *peer))
    start = kernel_start[:, 1] + 2_000
    memsets = operation(start, start + HIDDEN_NS, OTHER_STREAM, after + 6)
    memsets |= _alike(len(steps), bytes=MEMSET_BYTES)
    api = [
        _calls(kernels, LAUNCH, pid, -shape.turnaround_ns - 15_000, 5_000),
        _calls(copies[0], COPY, pid, -CALL_NS, shape.copy_ns(gpu)[steps] - CALL_NS),
        _calls(reduces, LAUNCH, pid + 1000, -30_000, 4_000),
        *(_calls(rows, COPY, pid + 2000, -9_000, 3_000) for rows in copies[1:]),
        _calls(memsets, SET, pid + 2000, -9_000, 3_000),
    ]
    return {
        "kernels": _table([kernels, reduces], name=NAMES),
        "copies": _table(copies, kind=KINDS, src_kind=MEMORIES, dst_kind=MEMORIES),
        "memsets": _table([memsets]),
        "api": _table(api, name=CALLS),
        "marks": _marks(shape, gpu, steps),
    }


def _alike(count: int, **values: Any) -> Columns:
    """So many rows that have these values."""
    return {name: np.full(count, value) for name, value in values.items()}


def _table(parts: list[Columns], **texts: list[str]) -> pd.DataFrame:
    """The rows of all parts; texts: of the columns that hold places in them."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    named = {name: pd.Categorical.from_codes(columns[name], categories=each) for name, each in texts.items()}
    return pd.DataFrame(columns | named)


def _copy(
    rows: Columns, kind: str, size: int, source: str, target: str, src_device: int = -1, dst_device: int = -1
) -> Columns:
    return rows | _alike(
        len(rows["start_ns"]),
        kind=KINDS.index(kind),
        bytes=size,
        src_kind=MEMORIES.index(source),
        dst_kind=MEMORIES.index(target),
        src_device=np.int32(src_device),
        dst_device=np.int32(dst_device),
    )


def _calls(rows: Columns, name: str, tid: int, offset_ns: int, duration_ns: int | np.ndarray) -> Columns:
    """A launch call for each operation, `offset_ns` from its start."""
    start = rows["start_ns"] + offset_ns
    same = _alike(len(start), tid=tid, name=CALLS.index(name))
    times = {"start_ns": start, "end_ns": start + duration_ns}
    return times | {"pid": rows["pid"], "correlation": rows["correlation"]} | same


def _marks(shape: Shape, gpu: int, steps: np.ndarray) -> pd.DataFrame:
    """By the first GPU of each process: `rank k of n` first, where every process is a rank, and each step's ranges.

    `step N` begins when all of the step before is launched, and `wait input` within it ends when the copy is called;
    TensorFlow's range of a host feed lies in that.
    """
    starts_ns = shape.step_starts_ns()
    per_process = shape.gpus // shape.processes
    frames: list[tuple[Any, Any, Any]] = []
    if gpu % per_process == 0:
        begin, end = starts_ns[steps] - AHEAD_NS, starts_ns[steps + 1] - AHEAD_NS
        end = np.where(steps == shape.steps - 1, starts_ns[-1], end)
        wait = starts_ns[steps] + shape.feeds_ns()[steps] - CALL_NS
        if steps[0] == 0:
            frames = [(f"rank {gpu // per_process} of {shape.processes}", [-AHEAD_NS], [-AHEAD_NS])]
        names = [f"step {step}" for step in steps.tolist()]
        frames += [(names, begin, end), ("wait input", begin + 1_000, wait), (GET_NEXT, begin + 2_000, wait - 1_000)]
    found = [pd.DataFrame({"name": name, "start_ns": start, "end_ns": end}) for name, start, end in frames]
    nothing = pd.DataFrame({"name": [], "start_ns": np.empty(0, np.int64), "end_ns": np.empty(0, np.int64)})
    marks = pd.concat(found, ignore_index=True) if found else nothing
    return marks.assign(
        name=marks["name"].astype("str"),
        open=False,
        pid=np.int64(shape.pid(gpu)),
        tid=np.int64(shape.pid(gpu)),
        domain=pd.Categorical(np.where(marks["name"] == GET_NEXT, "TSL", "ringscope"), categories=DOMAINS),
    )
