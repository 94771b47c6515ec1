"""Read the printed traces of `nvprof --print-gpu-trace` and `--print-api-trace`, with --csv or as text.

A log can hold several tables (one per process, or one per option), each under a header of its own, with the program's
output and nvprof's warnings before, after and between the rows. Times are relative to the start of the profiler's
session, and rounded as nvprof printed them; a doubt says how coarse they are.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pandas as pd

from ...doubts.recordings import coarse_times_printed
from ...ground.errors import UnreadableRecording
from ...model.timeline import Recording, Timeline, make
from ..opening import whole
from ..tables import printed
from ..tables.gathering import joined, require_gpu_work
from .printed_rows import RECORD, Block, Printed

_LOG: Final = re.compile(rb"(?m)^==\d+== NVPROF is profiling|^==(\d+|=+)== ?(Profiling result|Profiling application)")
_CSV_HEADER: Final = re.compile(rb'(?m)^"?Start"?,"?Duration"?,.*$')
_TEXT_HEADER: Final = re.compile(rb"(?m)^ *Start  +Duration  .*$")
_FIRSTS: Final = b'=" S'  # the first characters of lines that these patterns match
_PROCESS: Final = re.compile(rb"==(\d{1,10})== ")


def detects(head: bytes, path: Path) -> bool:
    """True if the head holds a line that nvprof itself prints, or the header of one of its tables."""
    head = printed.decoded(head)
    return bool(_LOG.search(head) or _CSV_HEADER.search(head) or _TEXT_HEADER.search(head) or _other_table(head))


def read(path: Path) -> Timeline:
    """Read kernels, copies and memsets, and API calls if they were printed, too. Raises UnreadableRecording for
    summaries, metric tables, a trace of API calls alone, and tables without any row."""
    data = printed.decoded(whole(path, b"\n"))
    parts: list[dict[str, pd.DataFrame]] = []
    left_out: Counter[str] = Counter()
    coarse_ns = 0
    for block in _blocks(data, path):
        table = Printed.read(block, path)
        parts.append(table.tables(left_out))
        coarse_ns = max(coarse_ns, table.resolution_ns())
    if not parts:
        raise _no_trace(path, data)
    tables = {name: joined([part[name] for part in parts if name in part]) for name in {k for p in parts for k in p}}
    operations = sum(len(tables[name]) for name in ("kernels", "copies", "memsets"))
    if not operations:
        raise _no_operations(path, tables, left_out)
    known = frozenset({"kernels", "copies", "memsets", "devices"} | ({"api"} if len(tables["api"]) else set()))
    tables["devices"] = tables["devices"].drop_duplicates("device").sort_values("device", ignore_index=True)
    timeline = make(
        Recording(path=str(path), format="nvprof-csv", tool="nvprof"),
        tables,
        known=known,
        doubts=(coarse_times_printed(coarse_ns),) if coarse_ns > 1 else (),
        left_out=left_out,
    )
    return require_gpu_work(timeline, path, RECORD)


def _blocks(data: bytes, path: Path) -> list[Block]:
    """Each header with the rows up to the next header, in order. A line that is a row cannot be a header."""
    lines = printed.Lines.of(data)
    pid, headers = -1, []
    for start, end in lines.other_lines(_FIRSTS):
        if match := _PROCESS.match(data, start, end):
            pid = int(match[1])
        elif _CSV_HEADER.match(data, start, end) or _TEXT_HEADER.match(data, start, end):
            headers.append((start, end, pid))
    stops = [start for start, _, _ in [*headers, (len(data), 0, 0)]][1:]
    return [_block(lines, header, stop, path) for header, stop in zip(headers, stops, strict=True)]


def _block(lines: printed.Lines, found: tuple[int, int, int], stop: int, path: Path) -> Block:
    start, end, pid = found
    line = lines.data[start:end].decode("utf-8", errors="replace")
    if not _CSV_HEADER.match(lines.data, start, end):
        return Block(tuple(re.split(r" {2,}", line.strip())), None, lines, (end + 1, stop), pid)
    header = tuple(cell.strip().strip('"') for cell in line.split(","))
    units, after = _units(header, lines.data, end + 1, path)
    return Block(header, units, lines, (after, stop), pid)


def _units(header: tuple[str, ...], data: bytes, at: int, path: Path) -> tuple[tuple[str, ...], int]:
    """(units, offset after their line): the first line with as many cells as the header that begins with two units
    of time."""
    for _ in range(100):
        end = data.find(b"\n", at)
        line = data[at : end if end >= 0 else len(data)]
        cells = tuple(cell.strip().strip('"') for cell in line.decode("utf-8", errors="replace").split(","))
        if len(cells) == len(header) and cells[0] in printed.TIME_NS and cells[1] in printed.TIME_NS:
            return cells, end + 1 if end >= 0 else len(data)
        if end < 0:
            break
        at = end + 1
    problem = "no row of units under the header of nvprof's table, so the unit of its times is unknown"
    raise UnreadableRecording(path, problem, "give nvprof's output unchanged")


def _other_table(data: bytes) -> tuple[str, str] | None:
    """Other tables that nvprof prints: (kind of table, why it is no recording)."""
    if re.search(rb'(?m)^"?Type"?,"?Time\(%\)|^"?Time\(%\)"?,"?Time"?,|^ *(Type +)?Time\(%\) +Time +Calls ', data):
        return "a summary of nvprof's", "totals by name do not say when anything ran"
    if re.search(
        rb'(?m)^"?Device"?,.*"?(Metric|Event) Name"?|^"?Device"?,.*"?Kernel"?,.*$|^Invocations +.*Metric ', data
    ):
        return "a table of nvprof's metrics", "nvprof repeats kernels to measure them, and keeps no times"
    return None


def _no_trace(path: Path, data: bytes) -> UnreadableRecording:
    other = _other_table(data)
    if other:
        return UnreadableRecording(path, f"{other[0]}, not a trace: {other[1]}", RECORD)
    if b"No kernels were profiled" in data or b"No CUDA application was profiled" in data:
        return UnreadableRecording(path, "nvprof saw no GPU work", "check that the program used a GPU, then " + RECORD)
    return UnreadableRecording(path, "a log of nvprof without a trace", RECORD)


def _no_operations(path: Path, tables: dict[str, pd.DataFrame], left_out: Counter[str]) -> UnreadableRecording:
    if len(tables["api"]):
        problem = (
            f"holds {len(tables['api'])} CUDA calls and no GPU operation: it was printed with --print-api-trace alone"
        )
        return UnreadableRecording(path, problem, RECORD)
    damaged = sum(count for reason, count in left_out.items() if reason != "unified memory faults")
    problem = f"none of {damaged} lines under nvprof's header is an operation" if damaged else "no GPU operation in it"
    return UnreadableRecording(path, problem, "let the program and nvprof end by themselves, and " + RECORD)
