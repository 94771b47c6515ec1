"""A trace for Perfetto (ui.perfetto.dev): steps, the ledger with causes of idle, streams and the host, on one clock.

Chrome's JSON trace format, gzipped: times in µs with three decimals, which keeps every nanosecond. Times count from the
first recording's origin, because times since the epoch lose precision in the browser. Slices of one track never
overlap, because Perfetto drops overlapping slices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ...ground.files import gzipped, written_whole
from ...model.analysed import Analysis, GpuAnalysis, HostThread
from ..charts.lanes import KINDS, Lane, ledger_lane, of_gpus, of_host
from ..terminal.progress_bar import Progress

_COMPRESSION = 5
BATCH = 50_000  # number of slices that are turned into text at a time


def write(analysis: Analysis, path: Path, *, progress: Progress | None = None) -> int:
    """Write the trace to `path` (.json.gz); returns the number of slices.

    `progress` is called with (slices written, slices in all, path)."""

    def told(done: int, total: int) -> None:
        if progress:
            progress(done, total, path)

    with written_whole(path) as beside, gzipped(beside, _COMPRESSION) as out:
        return _write(analysis, out, told)


def _write(analysis: Analysis, out: TextIO, told: Callable[[int, int], None]) -> int:
    lanes = list(of_gpus(analysis))
    hosts = list(_hosts(analysis))
    starts = [
        gpu.shift_ns + int(lane.start_ns[0])
        for gpu, of_host in zip(lanes, hosts, strict=True)
        for lane in (*gpu.streams, *of_host)
        if len(lane)
    ]
    # Times count from the first recording's origin or, if an operation starts earlier, from that start, because
    # Perfetto refuses negative times.
    origin = min([analysis.shift_ns[0], *starts])
    out.write('{"displayTimeUnit":"ns","otherData":{"origin":')
    out.write(json.dumps("the first recording's origin" if origin == analysis.shift_ns[0] else "the first operation"))
    out.write('},"traceEvents":[')
    out.write(_named("process_name", 1, 0, lanes[0].title) if lanes else "")
    tracks = [
        (gpu.title, gpu.shift_ns, (_steps(analysis, picture), ledger_lane(picture.ownership), *gpu.streams))
        for gpu, picture in zip(lanes, analysis.gpus, strict=True)
    ]
    named = zip(lanes, hosts, strict=True)
    tracks += [(f"host of {gpu.title}", gpu.shift_ns, of_host) for gpu, of_host in named if of_host]
    total = sum(len(lane) for _, _, of_one in tracks for lane in of_one)
    slices = 0
    quoted: dict[int, list[str]] = {}  # by the id of a lane's labels, which all lanes of a GPU or a host share
    for pid, (title, shift_ns, of_one) in enumerate(tracks, start=1):
        if pid > 1:
            out.write(",\n" + _named("process_name", pid, 0, title))
        out.write(f',\n{{"ph":"M","name":"process_sort_index","pid":{pid},"args":{{"sort_index":{pid}}}}}')
        for tid, lane in enumerate(of_one, start=1):
            out.write(",\n" + _named("thread_name", pid, tid, lane.name))
            out.write(
                f',\n{{"ph":"M","name":"thread_sort_index","pid":{pid},"tid":{tid},"args":{{"sort_index":{tid}}}}}'
            )
            if id(lane.labels) not in quoted:
                quoted[id(lane.labels)] = [json.dumps(label) for label in lane.labels]
            for count, text in _slices(lane, quoted[id(lane.labels)], pid, tid, shift_ns - origin):
                out.write(text)
                slices += count
                told(slices, total)
    out.write("\n]}\n")
    return slices


def _hosts(analysis: Analysis) -> Iterator[tuple[Lane, ...]]:
    """Per GPU the lanes of host threads; the threads of a process with several GPUs are with its first GPU."""
    seen: set[HostThread] = set()
    for picture in analysis.gpus:
        host = picture.host
        if host is None or seen & set(host.threads):
            yield ()
        else:
            seen |= set(host.threads)
            yield tuple(of_host(host))


def _steps(analysis: Analysis, picture: GpuAnalysis) -> Lane:
    rows = analysis.measures.gpus[picture.gpu].steps.rows
    count = len(picture.step_start_ns)
    numbers: Sequence[object] = [row.step for row in rows] if len(rows) == count else range(count)
    none = np.zeros(count, np.int64)
    return Lane(
        "steps",
        picture.step_start_ns,
        picture.step_end_ns,
        none.astype(np.int8),
        np.arange(count, dtype=np.int32),
        [f"step {number}" for number in numbers],
        none,
    )


def _slices(lane: Lane, name: Sequence[str], pid: int, tid: int, shift_ns: int) -> Iterator[tuple[int, str]]:
    """Yields the slices of a lane, BATCH at a time: their number, and their JSON with a comma before each slice.
    `name`: the lane's labels as JSON."""
    category = [json.dumps(kind) for kind in KINDS]
    fixed = f'"ph":"X","pid":{pid},"tid":{tid}'
    for first in range(0, len(lane), BATCH):
        part = slice(first, first + BATCH)
        columns = zip(
            _microseconds(lane.start_ns[part] + shift_ns),
            _microseconds(lane.end_ns[part] - lane.start_ns[part]),
            lane.label[part].tolist(),
            lane.kind[part].tolist(),
            lane.bytes[part].tolist(),
            strict=True,
        )
        text = "".join(
            f',\n{{{fixed},"ts":{ts},"dur":{dur},"name":{name[label]},"cat":{category[kind]}'
            + (f',"args":{{"bytes":{count}}}}}' if count else "}")
            for ts, dur, label, kind, count in columns
        )
        yield len(lane.start_ns[part]), text


def _microseconds(ns: NDArray[np.int64]) -> list[str]:
    whole, rest = np.divmod(ns, 1000)
    return [f"{a}.{b:03d}" for a, b in zip(whole.tolist(), rest.tolist(), strict=True)]


def _named(what: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}})
