"""Tables that profilers print, as CSV or as aligned text: which lines are rows, and what the cells are worth.

Numbers are read as the nearest double and scaled to integers. A decimal of ns resolution comes back exactly as long as
it lies below 2^51 ns (26 days): the errors of reading and of scaling are then under half a nanosecond together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

Array = np.ndarray

TIME_NS: Mapping[str, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# nvprof's kilobytes are binary: 5 000 000 floats print as 19.073486 MB.
SIZE_BYTES: Mapping[str, int] = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
EXACT_BELOW = 2.0**51

_NUMBER = r"^\s*(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(?P<unit>[A-Za-z]*)(?:/s)?\s*$"
_ROW_STARTS = np.zeros(256, dtype=bool)
_ROW_STARTS[np.frombuffer(b"0123456789.+-", dtype=np.uint8)] = True


def decoded(data: bytes) -> bytes:
    """UTF-8 bytes with `\\n` ends, also from what PowerShell's `>` writes (UTF-16)."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", errors="replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.replace(b"\r\n", b"\n") if b"\r\n" in data else data


def rows_only(body: bytes) -> tuple[bytes, int, int]:
    """The lines of `body` that begin with a number, in quotes or not, how many they are, and how many were dropped."""
    if not body:
        return b"", 0, 0
    if not body.endswith(b"\n"):
        body += b"\n"
    text = np.frombuffer(body, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    starts = np.concatenate(([0], ends[:-1] + 1))
    first = text[starts]
    quoted = first == ord('"')
    # A line has at least its own end, so the byte after a quote exists.
    first = np.where(quoted, text[np.minimum(starts + 1, len(text) - 1)], first)
    good = _ROW_STARTS[first]
    if good.all():
        return body, len(ends), 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False])).astype(np.int8)))
    runs = zip(starts[edges[::2]].tolist(), ends[edges[1::2] - 1].tolist(), strict=True)
    return b"".join(body[start : end + 1] for start, end in runs), int(good.sum()), int((~good).sum())


@dataclass(frozen=True, slots=True)
class Rows:
    """Cells of the wanted columns; `skipped` lines were no rows."""

    table: pa.Table
    skipped: int

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, column: str, units: Mapping[str, int] | None = None) -> tuple[Array, Array]:
        """(values, scales): float64, NaN where the cell is empty or no number; the scale that its own unit asks for.

        The scale is 1 where no unit is glued to the value, and NaN where the unit is not one of `units`.
        """
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
        """(codes, distinct texts): code -1 where the cell is empty."""
        if column not in self.table.column_names:
            return np.full(len(self), -1, dtype=np.int32), []
        return coded(self.table[column])


def read_rows(body: bytes, header: Sequence[str], *, numbers: Collection[str], texts: Collection[str]) -> Rows:
    """The wanted columns of comma-separated rows. Lines with too few or too many cells are skipped and counted.

    Raises pa.ArrowInvalid where a header names a wanted column twice.
    """
    lines, count, skipped = rows_only(body)
    return _parsed(lines, count, skipped, header, numbers=numbers, texts=texts, delimiter=",")


def read_aligned(body: bytes, header: Sequence[str], *, texts: Collection[str]) -> Rows:
    """The same for text tables: cells are parted by two spaces or more, units are glued to the numbers."""
    stripped = re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", body)
    lines, count, skipped = rows_only(re.sub(rb"[ \t]{2,}", b"\t", stripped))
    return _parsed(lines, count, skipped, header, numbers=(), texts=texts, delimiter="\t")


def _parsed(
    lines: bytes,
    count: int,
    skipped: int,
    header: Sequence[str],
    *,
    numbers: Collection[str],
    texts: Collection[str],
    delimiter: str,
) -> Rows:
    types = {c: pa.dictionary(pa.int32(), pa.string()) for c in header if c in texts}
    types |= {c: pa.float64() for c in header if c in numbers}
    if not lines:
        empty = pa.table({column: pa.array([], pa.string()).cast(kind) for column, kind in types.items()})
        return Rows(empty, skipped)
    table = _typed(lines, header, types, delimiter)
    if table is None or table.num_rows != count:
        # Lines of the program's own are in between; one with a lone quote would swallow those after it.
        whole = [line for line in lines.split(b"\n") if line and line.count(b'"') % 2 == 0]
        lines = b"\n".join(whole).decode("utf-8", errors="replace").encode() + b"\n"
        table = _typed(lines, header, types, delimiter)
    if table is None:
        # A cell is not what its column says: read all as text, and judge cell by cell.
        table = _csv(lines, header, dict.fromkeys(types, pa.dictionary(pa.int32(), pa.string())), delimiter)
    return Rows(table, skipped + count - table.num_rows)


def _typed(lines: bytes, header: Sequence[str], types: Mapping[str, pa.DataType], delimiter: str) -> pa.Table | None:
    try:
        return _csv(lines, header, types, delimiter)
    except pa.ArrowInvalid:
        return None


def _csv(lines: bytes, header: Sequence[str], types: Mapping[str, pa.DataType], delimiter: str) -> pa.Table:
    # A block holds whole rows; names of templates run to some kilobytes.
    return pyarrow.csv.read_csv(
        pa.py_buffer(lines),
        read_options=pyarrow.csv.ReadOptions(column_names=list(header), block_size=1 << 22),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if delimiter == "," else False,
            invalid_row_handler=lambda row: "skip",
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(types),
            column_types=dict(types),
            null_values=["", "-"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def scaled(values: Array, scale: Array | float) -> tuple[Array, Array]:
    """(integers, good): values times scale, rounded to the nearest integer; good where that is exact (see above)."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = values * scale
        good = np.abs(product) < EXACT_BELOW
    return np.rint(np.where(good, product, 0)).astype(np.int64), good


def categorical(codes: Array, texts: Sequence[str]) -> pd.Categorical:
    """Texts by code; a missing one (-1) is the empty text."""
    order = list(dict.fromkeys([*texts, ""]))
    place = {text: index for index, text in enumerate(order)}
    mapped = np.array([place[text] for text in texts] + [place[""]], dtype=np.int32)
    return pd.Categorical.from_codes(mapped[codes], categories=pd.Index(order, dtype="str"))


def coded(cells: pa.ChunkedArray) -> tuple[Array, list[str]]:
    """(codes, distinct texts) of a column: code -1 where the cell is empty."""
    if not pa.types.is_dictionary(cells.type):
        cells = cells.cast(pa.string()).dictionary_encode()
    whole = cells.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], cells.type)
    return pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()


def _at(values: Array, codes: Array, missing: float) -> Array:
    found: Array = np.append(values, missing)[codes]
    return found
