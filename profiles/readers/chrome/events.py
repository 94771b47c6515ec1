"""Read events of Chrome's trace format (JSON) in pieces, with times exact to the nanosecond.

Times are decimal microseconds, which Kineto counts from 1970: a double holds such times only to a quarter of a
microsecond. So the text of a time is kept and scaled as a decimal. A file is an object with a list of events, or
the list alone, which Chrome also accepts without its closing bracket.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...doubts.recordings import unfinished_recording
from ...ground.errors import UnreadableRecording
from ...ground.files import open_regular
from ...model.timeline import LONGEST_NAME, Doubt
from ..opening import HEAD_BYTES, whole
from ..tables import printed

Array = np.ndarray

_PIECE: Final = 1 << 16
_DIGITS: Final = 36  # longest text of a time, with sign and point: such a decimal fits into 128 bits
_LONGEST: Final = LONGEST_NAME  # longest event in bytes; a longer one is left out as damaged

# Possible numbers that JSON lacks (nan, inf, Infinity). The pattern begins with a character class, which `re`
# searches for fast.
_NO_NUMBER: Final = re.compile(rb"[-nNiI][nNiI]?(?:[aA][nN]|[nN][fF](?:[iI][nN][iI][tT][yY])?)(?=[\s,\]}])")
_INFINITE: Final = (b"inf", b"-inf", b"infinity", b"-infinity")
_STANDS_AFTER: Final = b"[:, \t\r\n"
_MOST_DROPPED: Final = 100  # most closing braces that a truncated last event may hold
_UNDECODED: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that ringscope reads."""

    name: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    size: Any = None  # bytes that a copy moves, in HIP's calls
    from_device: Any = msgspec.field(name="fromDevice", default=None)
    in_device: Any = msgspec.field(name="inDevice", default=None)
    to_device: Any = msgspec.field(name="toDevice", default=None)
    in_context: Any = msgspec.field(name="inContext", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements: Any = msgspec.field(name="In msg nelems", default=None)
    grid: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    dtype: Any = None
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw(b""))
    older_dims: msgspec.Raw = msgspec.field(name="Input dims", default=msgspec.Raw(b""))
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw(b""))
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw(b""))
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=None)
    index: Any = msgspec.field(name="Ev Idx", default=None)
    external: Any = msgspec.field(name="External id", default=None)
    older_external: Any = msgspec.field(name="external id", default=None)
    epoch_us: Any = msgspec.field(name="start_time_since_epoch_in_micros", default=None)


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are the undecoded text of decimal microseconds."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Args | None = None


class Document(msgspec.Struct):
    """A file of trace events, which are not decoded yet."""

    raw: list[msgspec.Raw] = msgspec.field(name="traceEvents")


def begins(head: bytes) -> bytes:
    """The opening bracket of a JSON object or array; b"" if the head begins with something else."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return start if start in (b"{", b"[") else b""


def holds_events(head: bytes) -> bool:
    """True if a file may hold trace events: an object with a list of events, or the list alone."""
    return b'"traceEvents"' in head if begins(head) == b"{" else begins(head) == b"[" and b'"ph"' in head


def trace(path: Path, kind: type[Any]) -> tuple[Any, tuple[Doubt, ...]]:
    """Decode a file as `kind`, a subclass of Document; also returns doubts. Raises UnreadableRecording if it is
    damaged."""
    with open_regular(path) as file:
        head = file.read(HEAD_BYTES)
    if begins(head) == b"{":
        return document(path, kind), ()
    data = whole(path, b'"')
    try:
        found, ended = array(data)
    except ValueError:
        try:
            found, ended = array(_plain_json(data))
        except ValueError as error:
            raise _damaged(path, error) from None
    return kind(found), () if ended else (unfinished_recording(),)


def document(path: Path, kind: type[Any]) -> Any:
    """Decode a file as `kind`, but not its events. Raises UnreadableRecording if it is incomplete JSON or no trace.
    Numbers that JSON does not allow (Kineto has written `inf` bandwidths) become null."""
    data = whole(path, b'"')
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNDECODED:
        pass
    try:
        return msgspec.json.decode(_plain_json(data), type=kind)
    except msgspec.ValidationError as error:
        raise UnreadableRecording(path, f"a JSON file, but not a trace: {error}", "record it again") from None
    except _UNDECODED as error:
        raise _damaged(path, error) from None


def array(data: bytes) -> tuple[list[msgspec.Raw], bool]:
    """(the events of a JSON array, True if it is complete). A truncated last event is dropped. ValueError if it is
    damaged."""
    data = data.rstrip().rstrip(b"\0")
    body = data.removesuffix(b"]").rstrip(b", \t\r\n")
    damage: Exception | None = None
    for dropped in range(_MOST_DROPPED):
        try:
            events = msgspec.json.decode(body + b"]", type=list[msgspec.Raw])
            # If an event was dropped, a bracket at the end was a part of it, as in "shape": "[]".
            return events, data.endswith(b"]") and not dropped
        except _UNDECODED as error:
            damage = damage or error
            # Cut at the previous closing brace, and try again: this one may be inside the truncated event.
            body = body[: max(body.rfind(b"}", 0, len(body) - 1), 0) + 1]
            if body[-1:] != b"}":
                break
    raise ValueError(str(damage))


def _plain_json(data: bytes) -> bytes:
    """The text with numbers that JSON does not allow replaced by null, and invalid UTF-8 by U+FFFD."""
    data = _NO_NUMBER.sub(_null, data)
    return data if data.isascii() else data.decode("utf-8", errors="replace").encode()


def _damaged(path: Path, error: Exception) -> UnreadableRecording:
    problem = f"a JSON file that is cut short or damaged ({error})"
    return UnreadableRecording(path, problem, "record it again, and let the profiler finish writing")


def _null(found: re.Match[bytes]) -> bytes:
    """`null` for a match that is a whole value (`nan`, `-Infinity`); the match itself if it is part of another word."""
    alone = found.string[found.start() - 1 : found.start()] in _STANDS_AFTER
    return b"null" if alone and found[0].lower() in (b"nan", b"-nan", *_INFINITE) else found[0]


def events(raw: list[msgspec.Raw], kind: type[Any] = Event) -> Iterator[tuple[list[Any], int]]:
    """For each piece of the file: (the events in it decoded as `kind`, number of entries that are damaged or too
    long)."""
    several, one = msgspec.json.Decoder(list[kind]), msgspec.json.Decoder(kind)  # type: ignore[valid-type]
    for at in range(0, len(raw), _PIECE):
        whole = raw[at : at + _PIECE]
        piece = whole if max(map(len, whole)) <= _LONGEST else [one for one in whole if len(one) <= _LONGEST]
        try:
            yield several.decode(b"[" + b",".join(piece) + b"]"), len(whole) - len(piece)
        except _UNDECODED:
            good = [event for raw_event in piece if (event := _event(raw_event, one)) is not None]
            yield good, len(whole) - len(good)


def _event(raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(raw)
    except _UNDECODED:
        return None


def integers(values: Iterable[Any], *, bits: int = 64) -> Array:
    """int64 (int32 if bits=32) numbers of integers or of text (also `stream 7`); -1 for other values and on
    overflow."""
    limit = 1 << (bits - 1)
    values = list(values)
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        found = np.full(len(values), -1, np.int64)
    elif kinds <= {int, type(None)}:  # usually true, and NumPy converts these much faster than a loop does
        try:
            found = np.array(values if kinds == {int} else [-1 if v is None else v for v in values], np.int64)
        except OverflowError:
            found = np.array([_integer(value, limit) for value in values], np.int64)
    else:
        found = np.array([_integer(value, limit) for value in values], np.int64)
    if bits < 64:
        found[(found < -limit) | (found >= limit)] = -1
    return found.astype(np.int64 if bits == 64 else np.int32, copy=False)


def devices(values: Iterable[Any]) -> Array:
    """int32 numbers of GPUs; -1 (unknown) for other values and for numbers below 0."""
    found = integers(values, bits=32)
    found[found < 0] = -1
    return found


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, str) and (match := re.fullmatch(r"(?:stream )?(-?[0-9]{1,19})", value)):
        value = int(match[1])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and -limit <= value < limit else -1


def texts(values: list[Any]) -> pd.Categorical:
    """The texts as a categorical; a value that is not a string becomes ""."""
    return printed.categorical(*coded(values))


def coded(values: list[Any]) -> tuple[Array, list[str]]:
    """(codes, distinct texts); a value that is not a string becomes ""."""
    found = values if set(map(type, values)) == {str} else [v if isinstance(v, str) else "" for v in values]
    return printed.coded(pa.chunked_array([pa.array(found, pa.string())]))


def nanoseconds(texts: Sequence[msgspec.Raw]) -> tuple[Array, Array]:
    """(int64 ns, True where valid) of microseconds in JSON text, quoted or not; rounded half to even to whole ns."""
    try:
        scaled = pc.cast(_plain(strings(texts)), pa.decimal128(38, 3))
        words = np.frombuffer(scaled.buffers()[1], dtype=np.int64).reshape(-1, 2)[: len(texts)]
        good = words[:, 1] == words[:, 0] >> 63
        return np.where(good, words[:, 0], 0), good
    except (pa.ArrowInvalid, ValueError):
        found = [_nanoseconds(bytes(text).strip(b'" \t')) for text in texts]
        good = np.array([value is not None for value in found], dtype=bool)
        return np.array([value or 0 for value in found], dtype=np.int64), good


def strings(*columns: Sequence[msgspec.Raw | bytes]) -> pa.Array:
    """An Arrow array of strings: each row joins the pieces of all columns. Raises ValueError if any is not ASCII."""
    lengths = np.zeros(len(columns[0]) + 1, np.int64)
    for column in columns:
        lengths[1:] += np.fromiter(map(len, column), np.int64, len(column))
    data = b"".join(columns[0] if len(columns) == 1 else chain.from_iterable(zip(*columns, strict=True)))
    if not data.isascii():
        raise ValueError("text that is not ASCII")
    offsets = pa.py_buffer(np.cumsum(lengths))
    return pa.Array.from_buffers(pa.large_string(), len(columns[0]), [None, offsets, pa.py_buffer(data)])


def _plain(texts: pa.Array) -> pa.Array:
    """The texts unchanged. Raises ValueError for those that Arrow's cast to a decimal cannot take.

    An exponent may crash the process (1e-999999999), and a number beyond 128 bits is cut without an error (1e300 to 0).
    """
    data = texts.buffers()[2].to_pybytes()
    if b"e" in data or b"E" in data or np.diff(np.frombuffer(texts.buffers()[1], np.int64)).max(initial=0) > _DIGITS:
        raise ValueError("no plain number")
    return texts


def _nanoseconds(cell: bytes) -> int | None:
    try:
        scaled = decimal.Decimal(cell.decode("ascii")) * 1000
        if not scaled.is_finite() or abs(scaled) >= 2**63:
            return None
        return int(scaled.to_integral_value(decimal.ROUND_HALF_EVEN))
    except (decimal.InvalidOperation, decimal.Overflow, UnicodeDecodeError):
        return None
