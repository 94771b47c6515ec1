"""Convert one table that nvprof printed into tables of a timeline."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...ground.errors import UnreadableRecording
from ...model.timeline import NAMELESS, WITHOUT_TIMES
from ..tables import printed

Array = np.ndarray

_NUMBERS: Final = frozenset({"Start", "Duration", "Size", "Context", "Stream", "Correlation_ID"})
_TEXTS: Final = frozenset({"SrcMemType", "DstMemType", "Device", "Src Dev", "Dst Dev", "Unified Memory", "Name"})
_COPY_KINDS: Final = {
    "HtoD": "h2d", "HtoA": "h2d", "DtoH": "d2h", "AtoH": "d2h", "PtoP": "p2p", "HtoH": "h2h",
    "DtoD": "d2d", "DtoA": "d2d", "AtoD": "d2d", "AtoA": "d2d",
}  # fmt: skip
RECORD: Final = "record again with `nvprof -o FILE` (or `nvprof --print-gpu-trace --csv --log-file FILE`)"

# The kinds of rows. Rows of the kinds after "api" are left out, and counted by kind.
SORTS: Final = (
    "kernel", "copy", "memset", "api", "unified memory faults", NAMELESS, WITHOUT_TIMES,
)  # fmt: skip
KERNEL, COPY, MEMSET, API = range(4)


@dataclass(frozen=True, slots=True)
class Block:
    """A header and the byte span of its rows. `units` is None in text output, in which each value has its own unit."""

    header: tuple[str, ...]
    units: tuple[str, ...] | None
    lines: printed.Lines
    span: tuple[int, int]
    pid: int


@dataclass(frozen=True, slots=True)
class Printed:
    block: Block
    rows: printed.Rows

    @staticmethod
    def read(block: Block, path: Path) -> Printed:
        if "Name" not in block.header or len(set(block.header)) < len(block.header):
            raise UnreadableRecording(path, "a table of nvprof with a damaged header", RECORD)
        try:
            if block.units is None:
                rows = printed.read_aligned(block.lines.data[slice(*block.span)], block.header, texts=_NUMBERS | _TEXTS)
            else:
                lines, span = block.lines, block.span
                rows = printed.read_rows(lines, *span, block.header, numbers=_NUMBERS, texts=_TEXTS)
        except pa.ArrowInvalid as error:
            problem = f"nvprof's table cannot be read ({str(error).splitlines()[0]})"
            raise UnreadableRecording(path, problem, RECORD) from None
        return Printed(block, rows)

    def unit(self, column: str) -> str:
        units = dict(zip(self.block.header, self.block.units or (), strict=False))
        return units.get(column, "")

    def resolution_ns(self) -> int:
        """The coarseness of the printed start times in ns; 0 if the text output holds the latest time exactly. CSV has
        six decimals of the column's unit. Text output has five digits, so that the latest time is the coarsest."""
        if self.block.units is not None:
            return printed.TIME_NS[self.unit("Start")] // 10**6
        start, _ = self.time_ns("Start")
        latest = int(start.max(initial=0))
        return int(10 ** (len(str(latest)) - 5)) if latest >= 10**5 else 0

    def time_ns(self, column: str) -> tuple[Array, Array]:
        values, scale = self.rows.numbers(column, printed.TIME_NS)
        return printed.scaled(values, scale * printed.TIME_NS.get(self.unit(column), 1))

    def bytes(self) -> Array:
        """Sizes in bytes, from the column `Unified Memory` where `Size` is empty; 0 where both are empty."""
        values, scale = self.rows.numbers("Size", printed.SIZE_BYTES)
        size, good = printed.scaled(values, scale * printed.SIZE_BYTES.get(self.unit("Size"), 1))
        values, scale = self.rows.numbers("Unified Memory", printed.SIZE_BYTES)
        paged, paged_good = printed.scaled(values, scale)
        return np.where(good, size, np.where(paged_good, paged, 0))

    def tables(self, left_out: Counter[str]) -> dict[str, pd.DataFrame]:
        """The tables of a timeline from these rows. Rows that fit in none are counted in `left_out` by reason."""
        codes, names, written_ids = _named(self.rows, suffixed="Correlation_ID" not in self.block.header)
        device, devices = self.rows.devices("Device")
        start, start_good = self.time_ns("Start")
        duration, duration_good = self.time_ns("Duration")
        sorts = np.array([SORTS.index(_sort(name)) for name in [*names, None]], dtype=np.int8)[codes]
        # If nvprof printed both traces as one table, the rows without a device are API calls.
        sorts[(sorts == KERNEL) & (device < 0)] = API
        timed = start_good & duration_good
        sorts[(sorts <= API) & ~timed] = SORTS.index(WITHOUT_TIMES)
        for number, count in enumerate(np.bincount(sorts, minlength=len(SORTS)).tolist()):
            if number > API:
                left_out[SORTS[number]] += count
        left_out["not a row"] += self.rows.skipped
        ids = self.rows.integers("Correlation_ID", np.int64)
        columns = {
            "start_ns": start,
            "end_ns": start + duration,
            "device": device,
            "context": self.rows.integers("Context", np.int32),
            "stream": self.rows.integers("Stream", np.int32),
            "correlation": np.where(ids >= 0, ids, written_ids) if len(written_ids) else ids,
        }

        def frame(sort: int, **more: Any) -> pd.DataFrame:
            rows = np.flatnonzero(sorts == sort)
            cells = {name: column[rows] for name, column in {**columns, **more}.items()}
            same = {"pid": np.int64(self.block.pid), "tid": np.int64(-1), "graph_node": np.int64(0)}
            return pd.DataFrame({**cells, **{k: np.full(len(rows), v) for k, v in same.items()}}, copy=False)

        name = printed.categorical(codes, names)
        return {
            "kernels": frame(KERNEL, name=name),
            "copies": frame(
                COPY,
                kind=printed.categorical(codes, [_copy_kind(name) for name in names], "other"),
                bytes=self.bytes(),
                src_kind=self.rows.memory_kinds("SrcMemType"),
                dst_kind=self.rows.memory_kinds("DstMemType"),
                src_device=self.rows.devices("Src Dev")[0],
                dst_device=self.rows.devices("Dst Dev")[0],
            ),
            "memsets": frame(MEMSET, bytes=self.bytes()),
            "api": frame(API, name=name),
            "devices": pd.DataFrame(
                {"device": list(devices), "uuid": "", "bus_id": "", "name": list(devices.values())}
            ).astype({"device": "int32"}),
        }


def _copy_kind(name: str) -> str:
    return _COPY_KINDS.get(name.rstrip("]").rpartition(" ")[2], "other")


def _sort(name: str | None) -> str:
    if name is None:
        return NAMELESS
    if re.fullmatch(r"\[(CUDA memcpy|Unified Memory Memcpy) \w+\]", name):
        return "copy"
    if name == "[CUDA memset]":
        return "memset"
    return "unified memory faults" if name.startswith("[Unified Memory") else "kernel"


def _named(rows: printed.Rows, *, suffixed: bool) -> tuple[Array, list[str], Array]:
    """(codes, distinct names, correlation ids) of names into which CUDA 8 wrote the correlation id.

    It writes `kernel(int) [7]` if there is no column for the id, and `cudaLaunch (kernel(int) [7])` for a launch
    call. The ids are removed chunk by chunk to save memory, since the names are many, and all different, as long
    as they hold ids.
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
