"""A copy of the working tree, in which one file at a time says something else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from .table import Mutation

_BESIDE = (".venv", "../shared")  # what tests look for in the tree and beside it, and git does not know


class Tree:
    """The copy. `root`: where it lies."""

    def __init__(self, of: Path, below: Path) -> None:
        self.root = below / of.name
        named = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=of,
            capture_output=True,
            check=True,
        )
        for name in filter(None, named.stdout.decode().split("\0")):
            if (of / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(of / name, self.root / name)
        for name in _BESIDE:
            if (of / name).exists() and not (self.root / name).exists():
                (self.root / name).symlink_to((of / name).resolve())
        self._later = count(1)

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """While it lasts the file says `new` where it said `old`."""
        file = self.root / mutation.file
        text = file.read_text()
        self._write(file, text.replace(mutation.old, mutation.new))
        try:
            yield
        finally:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        """Python takes what it compiled before for the same text where size and second of a file are the same."""
        file.write_text(text)
        at = file.stat().st_mtime + 10 * next(self._later)
        os.utime(file, (at, at))


def misplaced(mutation: Mutation, root: Path) -> str | None:
    """Why it cannot be applied to the tree there; None: it can."""
    file = root / mutation.file
    times = file.read_text().count(mutation.old) if file.is_file() else 0
    if times == 1:
        return None
    where = f"{times} times in {mutation.file}" if file.is_file() else f"nowhere, as {mutation.file} is not there"
    return f"{mutation.name}: its old text stands {where}; choose another in tests/mutations/table.py"
