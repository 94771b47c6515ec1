"""Unpack tar archives of recordings into a temporary directory. Damaged, endless and sparse archives are refused."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from ..ground.errors import UnreadableRecording
from .opening import MAX_BYTES, MAX_RATIO, RATIO_FROM_BYTES, folded, head, streams

_TAR, _TAR_AT = b"ustar", 257
_MOST_MEMBERS: Final = 10_000
_LONGEST_NAME: Final = 200
_HEADERS: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, *tarfile.GNU_TYPES)
_MOST_SEARCHED: Final = 1 << 31  # limit for the sum of squared lengths of headers: 10 000 headers of 460 bytes


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
    with tempfile.TemporaryDirectory(prefix="ringscope-") as folder, streams(path) as (raw, content):
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
            raise folded(self._path)
        return data
