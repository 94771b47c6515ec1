"""What `nvprof --print-gpu-trace` and `--print-api-trace` print, with --csv or as text, into a log or on the screen.

A log can hold several tables (one a process, or one a mode), each under a header of its own, with the program's output
and nvprof's warnings before, after and between the rows. Times are relative to the start of the profiler's session;
they are as exact as they were printed, which a doubt tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UnreadableRecording
from ..timeline import Doubt, Recording, Timeline, make
from . import printed

Array = np.ndarray

_LOG: Final = re.compile(rb"(?m)^==\d+== NVPROF is profiling|^==(\d+|=+)== ?(Profiling result|Profiling application)")
_CSV_HEADER: Final = re.compile(rb'(?m)^"?Start"?,"?Duration"?,.*$')
_TEXT_HEADER: Final = re.compile(rb"(?m)^ *Start  +Duration  .*$")
_PROCESS: Final = re.compile(rb"(?m)^==(\d+)== ")

_NUMBERS: Final = frozenset({"Start", "Duration", "Size", "Context", "Stream", "Correlation_ID"})
_TEXTS: Final = frozenset({"SrcMemType", "DstMemType", "Device", "Src Dev", "Dst Dev", "Unified Memory", "Name"})
_COPY_KINDS: Final = {
    "HtoD": "h2d", "HtoA": "h2d", "DtoH": "d2h", "AtoH": "d2h", "PtoP": "p2p", "HtoH": "h2h",
    "DtoD": "d2d", "DtoA": "d2d", "AtoD": "d2d", "AtoA": "d2d",
}  # fmt: skip
_MEMORY_KINDS: Final = frozenset({"pageable", "pinned", "device", "array", "managed"})
_RECORD: Final = "record again with `nvprof -o FILE` (or `nvprof --print-gpu-trace --csv --log-file FILE`)"


def detects(head: bytes, path: Path) -> bool:
    """nvprof's own lines, or the header of one of its tables."""
    head = printed.decoded(head)
    return bool(_LOG.search(head) or _CSV_HEADER.search(head) or _TEXT_HEADER.search(head) or _other_table(head))


def read(path: Path) -> Timeline:
    """Kernels, copies and memsets, and API calls where they were printed too.

    Raises UnreadableRecording for summaries, metric tables, a trace of API calls alone, and tables that break off
    before a row.
    """
    data = printed.decoded(path.read_bytes())
    parts: list[dict[str, pd.DataFrame]] = []
    left_out: Counter[str] = Counter()
    coarse_ns = 0
    for block in _blocks(data, path):
        table = _Table.read(block, path)
        parts.append(table.normal(left_out))
        coarse_ns = max(coarse_ns, table.resolution_ns())
    if not parts:
        raise _no_trace(path, data)
    tables = {name: _joined([part[name] for part in parts if name in part]) for name in {k for p in parts for k in p}}
    operations = sum(len(tables[name]) for name in ("kernels", "copies", "memsets"))
    if not operations:
        raise _no_operations(path, tables, left_out)
    known = frozenset({"kernels", "copies", "memsets", "devices"} | ({"api"} if len(tables["api"]) else set()))
    tables["devices"] = tables["devices"].drop_duplicates("device").sort_values("device", ignore_index=True)
    return make(
        Recording(path=str(path), format="nvprof-csv", tool="nvprof"),
        tables,
        known=known,
        doubts=_doubts(coarse_ns, left_out),
        left_out={reason: count for reason, count in left_out.items() if count},
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """A header and the lines up to the next one; `units` is None for text, where every value has its own."""

    header: tuple[str, ...]
    units: tuple[str, ...] | None
    body: bytes
    pid: int


def _blocks(data: bytes, path: Path) -> Iterator[_Block]:
    found = sorted((m.start(), m.end(), csv) for csv, e in _headers(data) for m in e)
    for index, (start, end, is_csv) in enumerate(found):
        stop = found[index + 1][0] if index + 1 < len(found) else len(data)
        line = data[start:end].decode("utf-8", errors="replace")
        before = _PROCESS.findall(data, max(0, start - 4096), start)
        pid = int(before[-1]) if before and len(before[-1]) < 11 else -1
        if not is_csv:
            yield _Block(tuple(re.split(r" {2,}", line.strip())), None, data[end + 1 : stop], pid)
            continue
        header = tuple(cell.strip().strip('"') for cell in line.split(","))
        units, after = _units(header, data, end + 1, path)
        yield _Block(header, units, data[after:stop], pid)


def _headers(data: bytes) -> list[tuple[bool, list[re.Match[bytes]]]]:
    """Matches of both kinds of header. A plain search first: the patterns are slow over 100 MB of rows."""
    places: list[tuple[bool, list[re.Match[bytes]]]] = []
    for is_csv, pattern, needle in ((True, _CSV_HEADER, b"Start"), (False, _TEXT_HEADER, b"Start  ")):
        matches = []
        at = data.find(needle)
        while at >= 0:
            line = data.rfind(b"\n", 0, at) + 1
            if match := pattern.match(data, line):
                matches.append(match)
            end = data.find(b"\n", at)
            at = data.find(needle, end) if end >= 0 else -1
        places.append((is_csv, matches))
    return places


def _units(header: tuple[str, ...], data: bytes, at: int, path: Path) -> tuple[tuple[str, ...], int]:
    """The row of units, and where it ends: the first line with as many cells that begins with a unit of time."""
    for _ in range(100):
        end = data.find(b"\n", at)
        line = data[at : end if end >= 0 else len(data)]
        cells = tuple(cell.strip().strip('"') for cell in line.decode("utf-8", errors="replace").split(","))
        if len(cells) == len(header) and cells[0] in printed.TIME_NS and cells[1] in printed.TIME_NS:
            return cells, end + 1 if end >= 0 else len(data)
        if end < 0:
            break
        at = end + 1
    problem = "no row of units under the header of nvprof's table, so its times mean nothing"
    raise UnreadableRecording(path, problem, "keep nvprof's output as it is printed")


def _other_table(data: bytes) -> tuple[str, str] | None:
    """What else nvprof prints: (what it is, why it is no recording)."""
    if re.search(rb'(?m)^"?Type"?,"?Time\(%\)|^"?Time\(%\)"?,"?Time"?,|^ *(Type +)?Time\(%\) +Time +Calls ', data):
        return "a summary of nvprof's", "totals by name tell nothing of when anything ran"
    if re.search(
        rb'(?m)^"?Device"?,.*"?(Metric|Event) Name"?|^"?Device"?,.*"?Kernel"?,.*$|^Invocations +.*Metric ', data
    ):
        return "a table of nvprof's metrics", "kernels are run again and again for them, and no times are kept"
    return None


def _no_trace(path: Path, data: bytes) -> UnreadableRecording:
    other = _other_table(data)
    if other:
        return UnreadableRecording(path, f"{other[0]}, not a trace: {other[1]}", _RECORD)
    if b"No kernels were profiled" in data or b"No CUDA application was profiled" in data:
        return UnreadableRecording(path, "nvprof saw no GPU work", "check that the program used a GPU, then " + _RECORD)
    return UnreadableRecording(path, "a log of nvprof's without a trace in it", _RECORD)


def _no_operations(path: Path, tables: dict[str, pd.DataFrame], left_out: Counter[str]) -> UnreadableRecording:
    if len(tables["api"]):
        problem = f"holds {len(tables['api'])} CUDA calls and no GPU operation: --print-api-trace alone"
        return UnreadableRecording(path, problem, _RECORD)
    damaged = sum(count for reason, count in left_out.items() if reason != "unified memory faults")
    problem = f"none of {damaged} lines under nvprof's header is an operation" if damaged else "no GPU operation in it"
    return UnreadableRecording(path, problem, "let the program and nvprof end by themselves, and " + _RECORD)


def _doubts(coarse_ns: int, left_out: Counter[str]) -> tuple[Doubt, ...]:
    doubts = []
    if coarse_ns > 1:
        text = (
            f"nvprof printed start times in steps of {coarse_ns} ns: gaps and overlaps shorter than that mean nothing"
        )
        doubts.append(Doubt("coarse-times", text, "record with `nvprof -o FILE`, or print with `--csv -u us`"))
    damaged = sum(left_out[reason] for reason in ("without times", "ends before it starts", "nameless"))
    if damaged:
        text = f"{damaged} rows have no usable times or names and are left out"
        doubts.append(Doubt("damaged-rows", text, _RECORD))
    return tuple(doubts)


@dataclass(frozen=True, slots=True)
class _Table:
    block: _Block
    rows: printed.Rows

    @staticmethod
    def read(block: _Block, path: Path) -> _Table:
        if "Name" not in block.header or len(set(block.header)) < len(block.header):
            raise UnreadableRecording(path, "a table of nvprof's whose header is damaged", _RECORD)
        try:
            if block.units is None:
                rows = printed.read_aligned(block.body, block.header, texts=_NUMBERS | _TEXTS)
            else:
                rows = printed.read_rows(block.body, block.header, numbers=_NUMBERS, texts=_TEXTS)
        except pa.ArrowInvalid as error:
            problem = f"nvprof's table cannot be read ({str(error).splitlines()[0]})"
            raise UnreadableRecording(path, problem, _RECORD) from None
        return _Table(block, rows)

    def unit(self, column: str) -> str:
        units = dict(zip(self.block.header, self.block.units or (), strict=False))
        return units.get(column, "")

    def resolution_ns(self) -> int:
        """The step in which start times were printed, at the latest one: six decimals, or five digits as text."""
        if self.block.units is not None:
            return printed.TIME_NS[self.unit("Start")] // 10**6
        start, _ = self.time_ns("Start")
        latest = int(start.max(initial=0))
        return int(10 ** (len(str(latest)) - 5)) if latest >= 10**5 else 0

    def time_ns(self, column: str) -> tuple[Array, Array]:
        values, scale = self.rows.numbers(column, printed.TIME_NS)
        return printed.scaled(values, scale * printed.TIME_NS.get(self.unit(column), 1))

    def integers(self, column: str) -> Array:
        """Numbers of a column; -1 where there is none."""
        whole, good = printed.scaled(self.rows.numbers(column)[0], 1)
        return np.where(good, whole, -1)

    def bytes(self) -> Array:
        """Sizes, from the column of unified memory where the row has none of its own."""
        values, scale = self.rows.numbers("Size", printed.SIZE_BYTES)
        size, good = printed.scaled(values, scale * printed.SIZE_BYTES.get(self.unit("Size"), 1))
        values, scale = self.rows.numbers("Unified Memory", printed.SIZE_BYTES)
        paged, paged_good = printed.scaled(values, scale)
        return np.where(good, size, np.where(paged_good, paged, 0))

    def devices(self, column: str) -> tuple[Array, dict[int, str]]:
        """Device numbers, and their names. nvprof numbers them only where it saw more than one, or prints CSV."""
        codes, texts = self.rows.texts(column)
        found = [re.fullmatch(r"(.*) \((\d{1,9})\)", text) for text in texts]
        numbers = [int(match[2]) if match else 0 for match in found]
        names = [match[1] if match else text for match, text in zip(found, texts, strict=True)]
        return np.array([*numbers, -1])[codes], dict(zip(numbers, names, strict=True))

    def memory_kinds(self, column: str) -> pd.Categorical:
        codes, texts = self.rows.texts(column)
        known = [text.lower() if text.lower() in _MEMORY_KINDS else "unknown" for text in texts]
        categories = sorted({*known, "unknown"})
        place = np.array([categories.index(text) for text in [*known, "unknown"]])
        return pd.Categorical.from_codes(place[codes], categories=categories)

    def normal(self, left_out: Counter[str]) -> dict[str, pd.DataFrame]:
        """The tables of a timeline in this one; rows that are none of them are counted by reason."""
        codes, names, written_ids = _named(self.rows, suffixed="Correlation_ID" not in self.block.header)
        kinds = np.array([_kind(name) for name in names] + ["nameless"], dtype=object)[codes]
        start, start_good = self.time_ns("Start")
        duration, duration_good = self.time_ns("Duration")
        device, named = self.devices("Device")
        # Rows without a device are API calls, where both traces are printed as one.
        on_gpu = np.isin(kinds, ["kernel", "copy", "memset"])
        kinds = np.where((kinds == "kernel") & (device < 0), "api", kinds)
        bad_time = ~(start_good & duration_good) & (on_gpu | (kinds == "api"))
        ends_early = (duration < 0) & ~bad_time
        kinds = np.where(bad_time, "without times", np.where(ends_early, "ends before it starts", kinds))
        for reason in set(kinds.tolist()) - {"kernel", "copy", "memset", "api"}:
            left_out[reason] += int((kinds == reason).sum())
        left_out["not a row"] += self.rows.skipped
        ids = self.integers("Correlation_ID")
        frame = pd.DataFrame(
            {
                "start_ns": start,
                "end_ns": start + duration,
                "device": device,
                "context": _int32(self.integers("Context")),
                "stream": _int32(self.integers("Stream")),
                "pid": np.int64(self.block.pid),
                "correlation": np.where(ids >= 0, ids, written_ids),
                "graph_node": np.int64(0),
            }
        )
        name = printed.categorical(codes, names)
        kernels = frame[kinds == "kernel"].assign(name=name[kinds == "kernel"])
        return {
            "kernels": kernels,
            "copies": self._copies(frame, kinds == "copy", codes, names),
            "memsets": frame[kinds == "memset"].assign(bytes=self.bytes()[kinds == "memset"]),
            "api": frame[kinds == "api"].assign(tid=np.int64(-1), name=name[kinds == "api"]),
            "devices": pd.DataFrame(
                {"device": list(named), "uuid": "", "bus_id": "", "name": [named[number] for number in named]}
            ).astype({"device": "int32"}),
        }

    def _copies(self, frame: pd.DataFrame, rows: Array, codes: Array, names: list[str]) -> pd.DataFrame:
        kinds = sorted({*_COPY_KINDS.values(), "other"})
        by_name = [kinds.index(_COPY_KINDS.get(name.rstrip("]").rpartition(" ")[2], "other")) for name in names]
        return frame[rows].assign(
            kind=pd.Categorical.from_codes(np.array([*by_name, 0])[codes[rows]], categories=kinds),
            bytes=self.bytes()[rows],
            src_kind=self.memory_kinds("SrcMemType")[rows],
            dst_kind=self.memory_kinds("DstMemType")[rows],
            src_device=self.devices("Src Dev")[0][rows],
            dst_device=self.devices("Dst Dev")[0][rows],
        )


def _kind(name: str) -> str:
    if re.fullmatch(r"\[(CUDA memcpy|Unified Memory Memcpy) \w+\]", name):
        return "copy"
    if name == "[CUDA memset]":
        return "memset"
    return "unified memory faults" if name.startswith("[Unified Memory") else "kernel"


def _named(rows: printed.Rows, *, suffixed: bool) -> tuple[Array, list[str], Array]:
    """(codes, distinct names, correlation ids): CUDA 8 writes the id into the name.

    `kernel(int) [7]` where there is no column for it, `cudaLaunch (kernel(int) [7])` for a call that launches. Block by
    block, because with the ids in them no two names are the same.
    """
    chunks, ids = [], [np.empty(0, dtype=np.int64)]
    for chunk in rows.table["Name"].chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.cast(pa.string()).dictionary_encode()
        names = pc.utf8_trim_whitespace(coded.dictionary)
        calls = pc.match_substring_regex(names, r"^cu\w+ \(.*\[\d{1,15}\]\)$")
        has_id = pc.or_(calls, suffixed)
        found = pc.struct_field(pc.extract_regex(names, r"\[(?P<id>\d{1,15})\]\)?$"), "id")
        number = pc.fill_null(pc.if_else(has_id, pc.cast(found, pa.int64()), -1), -1)
        plain = pc.replace_substring_regex(names, r" \[\d{1,15}\]$", "") if suffixed else names
        plain = pc.if_else(calls, pc.replace_substring_regex(names, r" \(.*$", ""), plain).dictionary_encode()
        chunks.append(pa.DictionaryArray.from_arrays(plain.indices.take(coded.indices), plain.dictionary))
        ids.append(pc.fill_null(number.take(coded.indices), -1).to_numpy(zero_copy_only=False))
    codes, texts = printed.coded(pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string())))
    return codes, texts, np.concatenate(ids)


def _int32(values: Array) -> Array:
    return np.where(np.abs(values) < 2**31, values, -1).astype(np.int32)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """One frame; categories of the parts are united, in order."""
    if len(frames) == 1:
        return frames[0].reset_index(drop=True)
    texts = [column for column in frames[0] if isinstance(frames[0][column].dtype, pd.CategoricalDtype)]
    whole = {column: pd.api.types.union_categoricals([frame[column] for frame in frames]) for column in texts}
    rest = pd.concat([frame.drop(columns=texts) for frame in frames], ignore_index=True)
    return rest.assign(**whole)
