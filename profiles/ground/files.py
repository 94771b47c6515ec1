"""Write files whole or not at all, and read files that ringscope wrote."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import secrets
import shutil
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from .errors import RingscopeError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to. That file replaces `path` if the block raises nothing; else it is removed.

    The data is on the disk before the file is renamed, so a machine that loses power keeps the old file or the new one.
    A pipe or a device such as /dev/null is written to directly, since a rename would replace it. Raises OSError.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.writing")  # another process may write `path`, too
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """As `whole`, for a file that the user named: raises RingscopeError if it cannot be written."""
    try:
        with whole(path) as beside:
            yield beside
    except OSError as error:
        raise RingscopeError(f"{path}: cannot be written: {error.strerror or error}; name another file") from None


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder that the user named, with its parents. If the block raises, all that was made is removed again.
    Raises RingscopeError if it cannot be made."""
    new: list[Path] = []
    try:
        try:
            new += [each for each in (folder, *folder.parents) if not each.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RingscopeError(f"{folder}: cannot be made: {error.strerror or error}; name another folder") from None
        yield
    except BaseException:
        if new:
            shutil.rmtree(new[-1], ignore_errors=True)
        raise


@contextmanager
def gzipped(path: Path, level: int, *, errors: str = "strict") -> Iterator[TextIO]:
    """Open a gzip file for writing text in UTF-8. Equal text gives equal bytes: the header has neither a name nor a
    time. `level`: of gzip, 1 to 9. `errors`: as in `open`. Raises OSError."""
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", level, file, mtime=0) as packed,
        io.TextIOWrapper(packed, "utf-8", errors) as out,
    ):
        yield out


def put(path: Path, text: str) -> None:
    """Write text as UTF-8; characters that UTF-8 cannot encode (from odd file names) become question marks. Raises
    OSError."""
    path.write_bytes(text.encode("utf-8", "replace"))


def user_cache() -> Path | None:
    """ringscope's cache folder. None if neither XDG_CACHE_HOME nor a home is known, as in a container whose user has
    no entry in /etc/passwd."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "ringscope"
    try:
        return Path.home() / ".cache" / "ringscope"
    except RuntimeError:
        return None


# The largest files of ringscope are measures of many GPUs: 60 MB for 512 GPUs with every step.
MOST_BYTES: Final = 128 << 20


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises OSError at once for anything else: a folder, a pipe or a device.

    The opened file is checked, not the path before, since the path may mean another file by then; and opening a
    pipe may wait for ever.
    """
    return open(path, "rb", opener=_at_once)


def _at_once(path: str, flags: int) -> int:
    file = os.open(path, flags | os.O_NONBLOCK)  # O_NONBLOCK: do not wait for a pipe's other end
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "not a file", path)


def bytes_of(path: Path) -> bytes:
    """Read a file that ringscope wrote, as `utf8` does. Raises OSError, also if the file is larger than MOST_BYTES or
    not a regular file, and ValueError."""
    with open_regular(path) as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise OSError(
            errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB, which is too large for a file of this kind", str(path)
        )
    return utf8(found)


def text_of(path: Path) -> str:
    """Read a text file that ringscope wrote. Raises as `bytes_of`, and ValueError if its text is not UTF-8."""
    return as_text(bytes_of(path))


def utf8(data: bytes, errors: str = "strict") -> bytes:
    """The bytes without the byte order mark that an editor may have added; UTF-16, as PowerShell's `>` writes, becomes
    UTF-8. Raises ValueError for damaged UTF-16. `errors`: as in `open`."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        data = _decoded(data, "UTF-16", errors).encode()
    return data.removeprefix(BOM_UTF8)


def as_text(data: bytes) -> str:
    r"""The bytes as text with `\n` line ends. Raises ValueError unless they are UTF-8, or UTF-16 with a byte order
    mark."""
    return _decoded(utf8(data), "UTF-8").replace("\r\n", "\n")


def _decoded(data: bytes, encoding: str, errors: str = "strict") -> str:
    try:
        return data.decode(encoding, errors)
    except UnicodeDecodeError:
        raise ValueError(f"its text is not {encoding}") from None


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Sort paths by name; digits in a name are compared as numbers, so that rank2 comes before rank10."""
    return sorted(paths, key=lambda path: [int(part) if part.isdigit() else part for part in _NUMBERS.split(str(path))])


_NUMBERS = re.compile(r"([0-9]+)")


def write_named(path: Path, text: str) -> None:
    """Write a text file that the user named, whole or not at all. Raises RingscopeError if it cannot be written."""
    with written_whole(path) as beside:
        put(beside, text)


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that nobody ever reads half of it, even if this process is killed. Raises OSError."""
    with whole(path) as beside:
        put(beside, text)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. Raises OSError. The block may replace the file by `write_whole`; a process that
    waited for the old file then locks the new one. A missing file is made, and removed if the block raises."""
    import fcntl

    while True:
        made = not os.path.lexists(path)
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                try:
                    yield
                except BaseException:
                    if made and path.is_file() and not path.stat().st_size:
                        path.unlink()
                    raise
                return
