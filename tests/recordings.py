"""Where the real recordings are: ours in tests/data, larger ones and those of others beside the repository."""

from __future__ import annotations

import hashlib
import lzma
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profiles import read
from profiles.model.timeline import Timeline

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
SHARED = ROOT.parent / "shared" / "recordings"
PUBLIC, MORE = SHARED / "public", SHARED / "more"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/recordings: real recordings are not here")

# The pairs without XLA first: tests that need one recording of known facts take it from the front.
OURS = sorted(DATA.glob("*.sqlite.xz"), key=lambda path: (not path.name.startswith("resnet50-2gpu"), path.name))
# By pattern, so that collecting the tests needs no folder.
NSYS = sorted(SHARED.glob("h200/*.sqlite.xz")) + sorted(SHARED.glob("public/nsys-sqlite/*"))
NVPROF = [
    path
    for path in sorted(SHARED.glob("public/nvprof-sqlite/*"))
    if path.name not in ("no-gpu-work.sql", "visual-profiler-xml.nvvp")
]


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Plain SQL on a recording, compressed or not, by Python's own sqlite3."""
    with closing(sqlite3.connect(f"file:{_plain(path)}?immutable=1", uri=True)) as connection:
        return connection.execute(sql).fetchall()


@cache
def timeline(path: Path) -> Timeline:
    """A recording, read once for all tests of a worker: who wants to change it makes another."""
    return read(path)


_FOLDER = tempfile.TemporaryDirectory(prefix="recordings-")


@cache
def _plain(path: Path) -> Path:
    if path.suffix != ".xz":
        return path
    file = Path(_FOLDER.name, f"{path.parent.name}-{path.stem}")
    file.write_bytes(lzma.decompress(path.read_bytes()))
    return file


def tables(path: Path) -> dict[str, list[str]]:
    names = [name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: [row[1] for row in rows(path, f'PRAGMA table_info("{name}")')] for name in names}


def fingerprint(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file of a folder: its bytes, its mode and when it was changed."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }
