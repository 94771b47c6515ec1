"""Turn a path that a user gives into a plain file for a reader, decompressed if need be, or raise an error.

Nothing is written beside an input: decompressed files lie in a temporary directory until the reader is done.
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
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

_TAR, _TAR_AT = b"ustar", 257
_LARGER: Final = "if this size is right, raise the limit by --max-size BYTES"
_MOST_MEMBERS: Final = 10_000
_LONGEST_NAME: Final = 200
_HEADERS: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, *tarfile.GNU_TYPES)
_MOST_SEARCHED: Final = 1 << 31  # limit for the sum of squared lengths of headers: 10 000 headers of 460 bytes
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
    check(path)
    with _streams(path) as (_, content):
        return content.read(HEAD_BYTES)


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
    with _streams(path) as (_, stream):
        yield stream


@contextmanager
def plain(path: Path, max_bytes: int | None = None) -> Iterator[Path]:
    """Give `path` itself, or a temporary file with its decompressed content (.xz, .gz or .zst, recognised by content).

    `max_bytes`: the most decompressed bytes (default MAX_BYTES, and MAX_RATIO times the compressed size). Raises
    UnreadableRecording, also if the file disappears while the caller reads it.
    """
    check(path)
    try:
        with _streams(path) as (raw, content):
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


@contextmanager
def members(path: Path, max_bytes: int | None = None) -> Iterator[dict[Path, Path]]:
    """Unpack a tar archive, compressed or not, into a temporary directory: unpacked file -> name for reports. Empty if
    `path` is no archive. Raises UnreadableRecording."""
    try:
        start = head(path)
    except UnreadableRecording:
        start = b""  # the caller will read the file as a recording, and report the error
    if start[_TAR_AT : _TAR_AT + len(_TAR)] != _TAR:
        yield {}
        return
    limit = MAX_BYTES if max_bytes is None else max_bytes
    with tempfile.TemporaryDirectory(prefix="ringscope-") as folder, _streams(path) as (raw, content):
        found: dict[Path, Path] = {}
        written = 0
        try:
            bounded = cast(BinaryIO, _Bounded(path, raw, content, max_bytes))
            with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_members()) as archive:
                for member in archive:
                    if member.issparse():  # a kilobyte of archive may unpack to terabytes of zeros
                        remedy = "unpack it, and name the recordings in it"
                        raise UnreadableRecording(path, "an archive with sparse files", remedy)
                    file = archive.extractfile(member) if member.isreg() else None
                    if file is None:
                        continue
                    written += member.size
                    if written > limit or len(found) >= _MOST_MEMBERS:
                        problem = f"an archive of more than {limit:,} bytes or {_MOST_MEMBERS:,} files"
                        raise UnreadableRecording(path, problem, "unpack it, and name the recordings in it")
                    # The archive's directories are not used, since a member may be called ../../FILE.
                    name = member.name.replace("\0", "?")
                    target = Path(folder, f"{len(found)}-{_short(Path(name).name)}")
                    with target.open("wb") as copy:
                        shutil.copyfileobj(file, copy)
                    found[target] = path / name
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:  # odd headers raise these
            raise UnreadableRecording(path, f"an archive that is damaged ({error})", "copy it again") from None
        yield found


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
                raise _folded(path)
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
def _streams(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
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


def _short(name: str) -> str:
    """The name, shortened in the middle if it is too long for a file system."""
    return name if len(os.fsencode(name)) <= _LONGEST_NAME else name[:40] + "..." + name[-20:]


def _members() -> type[tarfile.TarInfo]:
    """Make a TarInfo class for one archive, which limits the extended headers that tarfile reads.

    Python before 3.11.10 searches each extended header in time quadratic in its length, so the sum of their
    squared lengths is limited. Headers that hold names of files have a few hundred bytes.
    """
    left = _MOST_SEARCHED

    class Member(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Member:
            nonlocal left
            found = super().frombuf(buf, encoding, errors)
            if found.type in _HEADERS:
                left -= found.size * found.size
                if left < 0:
                    raise tarfile.HeaderError(f"one of its headers has {found.size:,} bytes")
            return found

    return Member


class _Bounded:
    """A decompressed stream that raises UnreadableRecording after MAX_RATIO times the compressed bytes that were
    read."""

    def __init__(self, path: Path, raw: BinaryIO, content: BinaryIO, max_bytes: int | None) -> None:
        self._path, self._raw, self._content = path, raw, content
        self._bounded = max_bytes is None and raw is not content
        self._read = 0

    def read(self, size: int) -> bytes:
        data = self._content.read(size)
        self._read += len(data)
        if self._bounded and self._read > max(RATIO_FROM_BYTES, MAX_RATIO * self._raw.tell()):
            raise _folded(self._path)
        return data


def _folded(path: Path) -> UnreadableRecording:
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
