"""Parse tables that profilers print, as CSV or aligned text: find the rows, and turn cells into integers and texts.

Numbers are read as the nearest double and scaled to integers. A time with ns resolution below 2^51 ns (26 days)
is exact, since the rounding errors of reading and scaling together are then below half a nanosecond.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ...ground.files import utf8

Array = np.ndarray

TIME_NS: Mapping[str, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# nvprof's kilobytes are binary: 5 000 000 floats print as 19.073486 MB.
SIZE_BYTES: Mapping[str, int] = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
EXACT_BELOW = 2.0**51
_MEMORY_KINDS: Mapping[str, str] = {
    **{kind: kind for kind in ("pageable", "pinned", "device", "array", "managed")},
    "device static": "device",
    "managed static": "managed",
}

_NUMBER = r"^\s*(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(?P<unit>[A-Za-z]*)(?:/s)?\s*$"
_WINDOW = 1 << 20
_ROW_STARTS = np.zeros(256, dtype=bool)
_ROW_STARTS[np.frombuffer(b"0123456789.+-", dtype=np.uint8)] = True


def decoded(data: bytes) -> bytes:
    """The text as UTF-8 with `\n` line ends; UTF-16, as PowerShell's `>` writes, is converted, bad bytes replaced."""
    data = utf8(data, "replace")
    if not _is_utf8(data):
        data = data.decode("utf-8", errors="replace").encode()
    return data.replace(b"\r\n", b"\n") if b"\r\n" in data[:_WINDOW] else data


def _is_utf8(data: bytes) -> bool:
    """True if the bytes are valid UTF-8. Arrow checks it, since `data.decode()` would copy the text."""
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Lines:
    """A text divided into rows (lines that begin with a number, quoted or not) and other lines."""

    data: bytes
    count: int  # number of all lines
    others: Array  # (n, 2): first byte and end of each line that is no row

    @staticmethod
    def of(data: bytes) -> Lines:
        """Find the lines of a text. It is searched in windows of 1 MiB, since temporary arrays are as large as a
        window."""
        count, found = 0, [np.empty((0, 2), dtype=np.int64)]
        at = 0
        while at < len(data):
            stop = at + _WINDOW
            end = len(data) if stop >= len(data) else data.find(b"\n", stop) + 1 or len(data)
            text = np.frombuffer(data, dtype=np.uint8, count=end - at, offset=at)
            ends = np.flatnonzero(text == ord("\n"))
            if not data.endswith(b"\n", at, end):
                ends = np.append(ends, len(text))
            starts = np.concatenate(([0], ends[:-1] + 1))
            first = text[starts]
            second = text[np.minimum(starts + 1, len(text) - 1)]
            other = ~_ROW_STARTS[np.where(first == ord('"'), second, first)]
            found.append(np.column_stack((starts[other], ends[other])) + at)
            count += len(starts)
            at = end
        return Lines(data, count, np.concatenate(found))

    def rows(self, start: int, stop: int) -> tuple[memoryview | bytes, int]:
        """The rows in data[start:stop], and how many other lines stand between them."""
        first, last = np.searchsorted(self.others[:, 0], (start, stop))
        between = self.others[first:last]
        if not len(between):
            return memoryview(self.data)[start:stop], 0
        begins, ends = np.append(start, between[:, 1] + 1), np.append(between[:, 0], stop)
        parts = np.column_stack((begins, ends))[begins < ends].tolist()
        return b"".join(self.data[begin:end] for begin, end in parts), len(between)

    def other_lines(self, firsts: bytes) -> Iterator[list[int]]:
        """First byte and end of each line that is no row and begins with one of these characters, in order."""
        starts = np.frombuffer(self.data, np.uint8)[self.others[:, 0]] if len(self.data) else np.empty(0, np.uint8)
        yield from self.others[np.isin(starts, np.frombuffer(firsts, np.uint8))].tolist()


@dataclass(frozen=True, slots=True)
class Rows:
    """Cells of the wanted columns. `skipped`: number of lines that were left out because they were no rows."""

    table: pa.Table
    skipped: int

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, column: str, units: Mapping[str, int] | None = None) -> tuple[Array, Array]:
        """(values, scales), both float64. A value is NaN if its cell is empty or no number. A scale is the factor of
        the unit in the cell: 1 if the cell has no unit, NaN if the unit is not in `units`."""
        if column not in self.table.column_names:
            return np.full(len(self), np.nan), np.ones(len(self))
        cells = self.table[column]
        if pa.types.is_floating(cells.type):
            return cells.to_numpy(), np.ones(len(self))
        codes, texts = coded(cells)
        parts = pc.extract_regex(pa.array(texts, pa.string()), _NUMBER)
        values = pc.cast(pc.struct_field(parts, "number"), pa.float64()).to_numpy(zero_copy_only=False)
        glued = pc.struct_field(parts, "unit").to_pandas()
        scales = glued.map({"": 1, **(units or {})}).to_numpy(float)
        return _at(values, codes, np.nan), _at(scales, codes, np.nan)

    def texts(self, column: str) -> tuple[Array, list[str]]:
        """(codes, distinct texts) of the cells. A code is an index into the texts, -1 where the cell is empty."""
        if column not in self.table.column_names:
            return np.full(len(self), -1, dtype=np.int32), []
        return coded(self.table[column])

    def integers(self, column: str, kind: type[np.int32] | type[np.int64]) -> Array:
        """Integers of a column; -1 if a cell holds no number, or too large a number."""
        values = self.numbers(column)[0]
        return np.where(np.abs(values) < min(2.0**53, np.iinfo(kind).max), values, -1).astype(kind)

    def devices(self, column: str) -> tuple[Array, dict[int, str]]:
        """(int32 device number of each row, -1 if empty; device name by number). Devices are printed as
        `NVIDIA H200 (0)`. nvprof's text leaves out the number if there is only one device."""
        codes, texts = self.texts(column)
        found = [re.fullmatch(r"(.*) \((\d{1,9})\)", text) for text in texts]
        numbers = [int(match[2]) if match else 0 for match in found]
        names = [match[1] if match else text for match, text in zip(found, texts, strict=True)]
        return np.array([*numbers, -1], dtype=np.int32)[codes], dict(zip(numbers, names, strict=True))

    def memory_kinds(self, column: str) -> pd.Categorical:
        codes, texts = self.texts(column)
        return categorical(codes, [_MEMORY_KINDS.get(text.lower(), "unknown") for text in texts], "unknown")


def read_rows(
    lines: Lines, start: int, stop: int, header: Sequence[str], *, numbers: Collection[str], texts: Collection[str]
) -> Rows:
    """The wanted columns of the comma-separated rows in data[start:stop]. Lines with too few or too many cells are
    skipped and counted. Raises pa.ArrowInvalid if the rows cannot be parsed."""
    body, skipped = lines.rows(start, stop)
    types = {c: pa.dictionary(pa.int32(), pa.string()) for c in header if c in texts}
    types |= {c: pa.float64() for c in header if c in numbers}
    return _parsed(body, skipped, header, types, ",")


def read_aligned(body: bytes, header: Sequence[str], *, texts: Collection[str]) -> Rows:
    """The wanted columns of an aligned text table, whose cells are separated by at least two spaces."""
    body = re.sub(rb"[ \t]{2,}", b"\t", re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", body))
    rows, skipped = Lines.of(body).rows(0, len(body))
    types = {c: pa.dictionary(pa.int32(), pa.string()) for c in header if c in texts}
    return _parsed(rows, skipped, header, types, "\t")


def _parsed(
    body: bytes | memoryview, skipped: int, header: Sequence[str], types: Mapping[str, pa.DataType], delimiter: str
) -> Rows:
    if not len(body):
        empty = pa.table({column: pa.array([], pa.string()).cast(kind) for column, kind in types.items()})
        return Rows(empty, skipped)
    table, odd = _typed(body, header, types, delimiter)
    if table is None or odd:
        # The profiled program printed lines in between; a line with one quote would join the lines after it.
        lines = bytes(body).split(b"\n")
        whole = [line for line in lines if line and line.count(b'"') % 2 == 0]
        skipped += sum(1 for line in lines if line) - len(whole)
        body = b"\n".join(whole) + b"\n"
        table, odd = _typed(body, header, types, delimiter)
    if table is None:
        # Some cell does not fit its column's type. Read all columns as text, so that each cell is checked by itself.
        types = dict.fromkeys(types, pa.dictionary(pa.int32(), pa.string()))
        table, odd = _csv(body, header, types, delimiter)
    return Rows(table, skipped + odd)


def _typed(
    body: bytes | memoryview, header: Sequence[str], types: Mapping[str, pa.DataType], delimiter: str
) -> tuple[pa.Table | None, int]:
    try:
        return _csv(body, header, types, delimiter)
    except pa.ArrowInvalid:
        return None, 0


def _csv(
    body: bytes | memoryview, header: Sequence[str], types: Mapping[str, pa.DataType], delimiter: str
) -> tuple[pa.Table, int]:
    """(the table, number of lines that had too few or too many cells)."""
    odd: list[str] = []

    def skip(row: Any) -> str:
        odd.append(row.text)
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.py_buffer(body),
        # A row has to fit in a block. C++ template names have up to a few kilobytes.
        read_options=pyarrow.csv.ReadOptions(column_names=list(header), block_size=1 << 22),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if delimiter == "," else False,
            invalid_row_handler=skip,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(types),
            column_types=dict(types),
            null_values=["", "-"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    return table, len(odd)


def scaled(values: Array, scale: Array | float) -> tuple[Array, Array]:
    """Values times scale, rounded to int64; and True where |product| < EXACT_BELOW, so that the rounding is exact."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = values * scale
        good = np.abs(product) < EXACT_BELOW
    return np.rint(np.where(good, product, 0)).astype(np.int64), good


def categorical(codes: Array, texts: Sequence[str], missing: str = "") -> pd.Categorical:
    """A categorical from codes, which are indices into `texts` (texts may repeat); code -1 becomes `missing`."""
    order = list(dict.fromkeys([*texts, missing]))
    place = {text: index for index, text in enumerate(order)}
    mapped = np.array([place[text] for text in [*texts, missing]], dtype=np.int32)
    return pd.Categorical.from_codes(mapped[codes], categories=pd.Index(order, dtype="str"))


def coded(cells: pa.ChunkedArray) -> tuple[Array, list[str]]:
    """(codes, distinct texts) of a column. A code is an index into the texts, -1 where the cell is empty."""
    if not pa.types.is_dictionary(cells.type):
        cells = cells.cast(pa.string()).dictionary_encode()
    whole = cells.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], cells.type)
    return pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()


def _at(values: Array, codes: Array, missing: float) -> Array:
    found: Array = np.append(values, missing)[codes]
    return found
