"""Files that are there twice: a copy of a recording is no further rank."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_END_BYTES: Final = 1 << 16  # of unlike recordings of one size almost always unlike


def originals(paths: Iterable[Path]) -> dict[Path, Path]:
    """Of each file with the same bytes as one before it, that one. Whole files are read only where size, begin and end
    are the same; what cannot be read, or is empty, is nobody's copy."""
    alike: dict[tuple[int, bytes, bytes], list[Path]] = {}
    found: dict[Path, Path] = {}
    for path, size in _of_a_shared_size(paths):
        try:
            earlier = alike.setdefault((size, *_ends(path, size)), [])
            original = next((one for one in earlier if filecmp.cmp(one, path, shallow=False)), None)
        except OSError:
            continue
        if original is None:
            earlier.append(path)
        else:
            found[path] = original
    return found


def _of_a_shared_size(paths: Iterable[Path]) -> list[tuple[Path, int]]:
    sizes: dict[Path, int] = {}
    for path in paths:
        try:
            sizes[path] = path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    counts: dict[int, int] = {}
    for size in sizes.values():
        counts[size] = counts.get(size, 0) + 1
    return [(path, size) for path, size in sizes.items() if size and counts[size] > 1]


def _ends(path: Path, size: int) -> tuple[bytes, bytes]:
    with path.open("rb") as file:
        begin = file.read(_END_BYTES)
        file.seek(max(0, size - _END_BYTES))
        return begin, file.read()
