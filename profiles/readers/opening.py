"""Turn a path that a user gives into a plain file for a reader, decompressed if need be, or raise an error.

Nothing is written beside an input: decompressed files lie in a temporary directory until the reader is done.
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import stat
import tempfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from ..ground.errors import UnreadableRecording
from ..ground.files import open_regular

HEAD_BYTES: Final = 1 << 16

# Limits of decompression: a few hundred bytes of .xz can decompress to terabytes. Real recordings compress 5 to 30
# times.
MAX_BYTES: Final = 64 << 30
MAX_RATIO: Final = 1000
# Up to this decompressed size the ratio is not checked: a few megabytes of zeros do no harm.
RATIO_FROM_BYTES: Final = 64 << 20

# Only SQLite files have this many bytes of zeros or blanks in a row.
MAX_BLANK: Final = 16 << 20
_BLANK: Final = b"\0 \t\r\n"
_MARKS: Final = {b'"': "a quotation mark", b"\n": "the end of a line"}
_SQLITE: Final = b"SQLite format 3\0"

_LARGER: Final = "if this size is right, raise the limit by --max-size BYTES"
_CHUNK: Final = 1 << 20
_NESTED: Final = 3
_MAGICS: Final = (b"\xfd7zXZ\0", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")


def check(path: Path) -> None:
    """Raises UnreadableRecording unless `path` is a readable regular file that is not empty."""
    try:
        status = path.stat()
    except OSError as error:
        raise unopened(path, error) from None
    except ValueError:  # the name has a NUL byte
        raise UnreadableRecording(repr(str(path)), "not a possible file name", "check the path") from None
    if stat.S_ISDIR(status.st_mode):
        if not os.access(path, os.R_OK | os.X_OK):
            raise unopened(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        raise UnreadableRecording(path, "a directory, not a recording", "name the recordings in it")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableRecording(path, "not a regular file", "copy its content into a file first")
    if status.st_size == 0:
        raise UnreadableRecording(path, "empty", "record again, and let the profiler finish writing")


def head(path: Path) -> bytes:
    """The first HEAD_BYTES of the file's content, decompressed if need be. Raises UnreadableRecording."""
    with content(path) as stream:
        return stream.read(HEAD_BYTES)


def is_packed(path: Path) -> bool:
    """True if the file is compressed. Never raises."""
    try:
        with open_regular(path) as file:
            return file.read(max(map(len, _MAGICS))).startswith(_MAGICS)
    except (OSError, ValueError):  # ValueError: the name has a NUL byte
        return False


@contextmanager
def content(path: Path) -> Iterator[BinaryIO]:
    """A stream of the file's content, decompressed if need be. Raises UnreadableRecording."""
    check(path)
    with streams(path) as (_, stream):
        yield stream


@contextmanager
def plain(path: Path, max_bytes: int | None = None) -> Iterator[Path]:
    """Give `path` itself, or a temporary file with its decompressed content (.xz, .gz or .zst, recognised by content).

    `max_bytes`: the most decompressed bytes (default MAX_BYTES, and MAX_RATIO times the compressed size). Raises
    UnreadableRecording, also if the file disappears while the caller reads it.
    """
    check(path)
    try:
        with streams(path) as (raw, content):
            if raw is content:
                yield path
                return
            with tempfile.TemporaryDirectory(prefix="ringscope-") as folder:
                target = Path(folder, path.stem or "recording")
                _unfold(path, raw, content, target, max_bytes)
                yield target
    except OSError as error:  # the file disappeared after the check; errors about other files are raised unchanged
        if error.filename is not None and os.fsdecode(error.filename) != str(path):
            raise
        raise unopened(path, error) from None


def whole(path: Path, mark: bytes) -> bytes:
    """The content of a text file, without its byte order mark. `mark`: a byte that is frequent in the file's format.

    Raises UnreadableRecording if MAX_BLANK bytes hold no `mark`: they are zeros, blanks, or one endless name or line.
    """
    with open_regular(path) as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at + MAX_BLANK < size:
            # The end of each stretch is searched first: in a profiler's output `mark` is found there.
            for length in (HEAD_BYTES, MAX_BLANK):
                begin = at + MAX_BLANK - length
                if (last := os.pread(file.fileno(), length, begin).rfind(mark)) >= 0:
                    break
            else:
                problem = f"has {MAX_BLANK >> 20} MiB without {_MARKS[mark]} in them, which no profiler writes"
                raise UnreadableRecording(path, problem, "copy it again, or record again")
            at = begin + last + 1
        return file.read().removeprefix(BOM_UTF8)


def _unfold(path: Path, raw: BinaryIO, content: BinaryIO, target: Path, max_bytes: int | None) -> None:
    limit = MAX_BYTES if max_bytes is None else max_bytes
    written = blank = 0
    start = cast(io.BufferedReader, content).peek(HEAD_BYTES)[:HEAD_BYTES]
    most_blank = 0 if not start.strip(_BLANK) else MAX_BLANK
    with target.open("wb") as file:
        while chunk := content.read(_CHUNK):
            written += len(chunk)
            blank = 0 if chunk.strip(_BLANK) else blank + len(chunk)
            if max_bytes is None and blank > most_blank and not start.startswith(_SQLITE):
                why = "zeros or blanks" if not most_blank else f"{blank >> 20} MiB of zeros or blanks in a row"
                raise UnreadableRecording(path, f"unpacks to {why}, which no recording does", _LARGER)
            if max_bytes is None and written > max(RATIO_FROM_BYTES, MAX_RATIO * raw.tell()):
                raise folded(path)
            if written > limit:
                raise UnreadableRecording(
                    path, f"unpacks to more than {limit:,} bytes, which no recording does", _LARGER
                )
            try:
                file.write(chunk)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                remedy = "free some space, or point TMPDIR to a disk with more"
                raise UnreadableRecording(path, f"no space in {target.parent} to unpack it", remedy) from None


@contextmanager
def streams(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """(stream of the file's bytes, stream of its decompressed content); one stream for both if it is not compressed."""
    try:
        raw = open_regular(path)
    except OSError as error:
        raise unopened(path, error) from None
    with raw:
        content: BinaryIO = raw
        for _ in range(_NESTED):
            start = cast(io.BufferedReader, content).peek(8)
            kind = next((magic for magic in _MAGICS if start.startswith(magic)), None)
            if kind is None:
                break
            content = cast(BinaryIO, io.BufferedReader(_Damaged(path, _decompress(kind, content)), _CHUNK))
        yield raw, content


def _decompress(kind: bytes, stream: BinaryIO) -> BinaryIO:
    if kind == _MAGICS[0]:
        return cast(BinaryIO, lzma.open(stream))
    if kind == _MAGICS[1]:
        return cast(BinaryIO, gzip.open(stream))
    import pyarrow as pa

    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd"))


def folded(path: Path) -> UnreadableRecording:
    why = f"more than {MAX_RATIO} times its size"
    return UnreadableRecording(path, f"unpacks to {why}, which no recording does", _LARGER)


class _Damaged(io.RawIOBase):
    """A decompressing stream that turns errors of the compressed data into UnreadableRecording."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path = path
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
            problem = f"compressed, and damaged or cut short ({error})"
            raise UnreadableRecording(self._path, problem, "copy or download it again") from None
        buffer[: len(data)] = data
        return len(data)


def unopened(path: Path, error: OSError) -> UnreadableRecording:
    """The error for a file that cannot be opened: it does not exist (any more), or may not be read."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return UnreadableRecording(path, "no such file", "check the path")
    remedy = "check its permissions" if error.errno in (errno.EACCES, errno.EPERM) else "check the path and the disk"
    return UnreadableRecording(path, f"cannot be opened ({error.strerror})", remedy)
