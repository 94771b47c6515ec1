"""Partial files: units that one host measured from its recordings, to be joined with units of other hosts.

A partial file is gzipped JSON of schema ringscope.partial/1 (docs/reference/files.md). It holds the measures, and
the data by which other ranks may correct them, but no operations. Times are in ns on each recording's own clock.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..ground import typed
from ..ground.errors import RingscopeError, UnreadableRecording
from ..ground.files import MOST_BYTES, gzipped, open_regular, written_whole
from ..ground.version import VERSION
from ..model.measures_json import plain
from ..model.timeline import Doubt
from ..readers import opening
from .one_recording import Asked, Unit
from .partial_units import Written, array_of, listed, plain_unit

SCHEMA: Final = "ringscope.partial/1"
_BEGINS: Final = b'{"schema": "ringscope.partial/'
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Held:
    """A recording in a partial file: its measures are known, but it cannot be read again."""

    path: Path
    recording: str

    def refusal(self, from_step: int, of: Sequence[str]) -> RingscopeError:
        """The error if this recording must be measured again. `of`: the recordings that must be measured together
        with it."""
        if len(of) > 1:
            problem = f"{', '.join(of)} belong together (one GPU, one clock), but {self.path} holds only some of them"
            return RingscopeError(f"{problem}; make one partial file of all of them")
        problem = f"{self.path}: its steps begin too early: other ranks are warmed up only at step {from_step}"
        return RingscopeError(f"{problem}; make it again with --from-step {from_step}")


@contextmanager
def written(path: Path, units: Sequence[Unit], doubts: Sequence[Doubt], asked: Asked) -> Iterator[None]:
    """Write measured units, and doubts about unreadable files. If the block raises an error, no file is left. Raises
    RingscopeError if the file cannot be written."""
    data = {
        "schema": SCHEMA,
        "version": VERSION,
        "window": asked.window,
        "doubts": plain(doubts),
        "units": [plain_unit(unit) for unit in units],
    }
    with written_whole(path) as beside:
        with gzipped(beside, 6, errors="replace") as out:
            # Not as ASCII escapes: `errors` replaces lone surrogates, which names outside UTF-8 have, only if they
            # are written raw.
            json.dump(data, out, allow_nan=False, ensure_ascii=False, default=listed)
        yield


def detects(path: Path) -> bool:
    """True if this is a partial file. Never raises."""
    try:
        with open_regular(path) as file:
            if file.read(2) != _GZIP:
                return False
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as content:
                return content.read(len(_BEGINS)) == _BEGINS
    except (OSError, EOFError, ValueError, zlib.error):  # ValueError: the name has a NUL byte
        return False


def read(path: Path, asked: Asked, max_bytes: int | None = None) -> list[Unit]:
    """Read the units in a partial file. `max_bytes`: the largest unpacked size (default MOST_BYTES). Raises
    UnreadableRecording if the file is damaged, or was made by another version or with another window."""
    again = "make it again: ringscope timeline PATH --partial FILE"
    text = _unfolded(path, MOST_BYTES if max_bytes is None else max_bytes)
    try:
        head = typed.decoded(_Head, text)
        if head.schema != SCHEMA or head.version != VERSION:
            problem = f"a partial file of ringscope {head.version} ({head.schema}), but this is ringscope {VERSION}"
            raise UnreadableRecording(path, problem, again)
        if head.window != asked.window:
            problem = f"measured with --window {head.window or 'steps where there are any'}, but asked for with "
            raise UnreadableRecording(path, problem + (asked.window or "the default"), again)
        held = typed.decoded(_File, text, array_of)
        units = [one.made() for one in held.units]
        if not units:
            raise ValueError("it holds nothing")
        first = units[0].recordings[0]
        units[0].recordings = (replace(first, doubts=(*held.doubts, *first.doubts)), *units[0].recordings[1:])
        return units
    except (ValueError, KeyError, TypeError) as error:  # KeyError and TypeError: a run record in the file is damaged
        problem = f"a partial file, cut short, damaged or of another build of ringscope {VERSION} ({error})"
        raise UnreadableRecording(path, problem, again) from None


def _unfolded(path: Path, most: int) -> bytes:
    with opening.content(path) as content:
        found = content.read(most + 1)
    if len(found) > most:
        problem = f"a partial file that unpacks to more than {most:,} bytes"
        raise UnreadableRecording(path, problem, "if this size is right, raise the limit by --max-size BYTES")
    return found


@dataclass(frozen=True, slots=True)
class _Head:
    schema: str
    version: str
    window: str | None


@dataclass(frozen=True, slots=True)
class _File:
    doubts: list[Doubt]
    units: list[Written]
