"""A copy of the working directory, so that a script under trial changes no file of the user's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiles.ground.errors import RingscopeError

LARGEST_BYTES = 1 << 30
MOST_FILES = 100_000


@contextmanager
def copied(folder: Path, into: Path, or_else: str = "") -> Iterator[Path]:
    """A copy of `folder` below `into`, a new folder that is removed afterwards. Environments, .git and targets of links
    are linked, not copied.

    or_else: text added to the error about a folder that is too large. Raises RingscopeError for more than MOST_FILES
    files or LARGEST_BYTES bytes.
    """
    _check(folder, or_else)
    into.mkdir()
    copy = into / (folder.name or "root")
    _copy(folder, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(into, ignore_errors=True)


def _is_linked(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.name == ".git" or (entry.is_dir() and os.path.exists(f"{entry.path}/pyvenv.cfg"))


def _files(folder: str) -> Iterator[int]:
    """The sizes in bytes of the files that would be copied."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_linked(entry) or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.is_file():
                yield entry.stat().st_size


def _check(folder: Path, or_else: str) -> None:
    total = 0
    for number, size in enumerate(_files(str(folder))):
        total += size
        if total > LARGEST_BYTES or number >= MOST_FILES:
            raise RingscopeError(
                f"{folder}: more than {LARGEST_BYTES >> 30} GiB or {MOST_FILES:,} files are too much to copy for a"
                " trial of the script; run this in a folder with the script alone (large data may be linked there)"
                f"{or_else}"
            )


def _copy(folder: Path, copy: Path) -> None:
    copy.mkdir()
    with os.scandir(folder) as entries:
        for entry in entries:
            target = copy / entry.name
            if _is_linked(entry):
                target.symlink_to(os.path.realpath(entry.path))
            elif entry.is_dir() and entry.name != "__pycache__":
                _copy(Path(entry.path), target)
            elif entry.is_file():
                shutil.copy2(entry.path, target)
