"""Find files with the same content among the files to read, so that a copy does not count as another rank."""

from __future__ import annotations

import filecmp
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Final

from ..ground.errors import UnreadableRecording
from ..ground.files import open_regular
from . import opening

_END_BYTES: Final = 1 << 16  # compared first, since different recordings of equal size almost always differ here
_CHUNK: Final = 1 << 20


def originals(paths: Iterable[Path]) -> dict[Path, Path]:
    """Map each copy to the first file with the same content, compressed or not. Whole files are read only if cheaper
    checks cannot tell them apart. A file that is empty or cannot be read is no copy."""
    paths = list(paths)
    found = _of_the_same_bytes(paths)
    return found | _packed([path for path in paths if path not in found])


def _of_the_same_bytes(paths: Sequence[Path]) -> dict[Path, Path]:
    sizes = _of_a_shared_size(paths)
    return _first_alike(
        sizes,
        lambda path: (sizes[path], *_ends(path, sizes[path])),
        lambda one, other: filecmp.cmp(one, other, shallow=False),
    )


def _packed(paths: Sequence[Path]) -> dict[Path, Path]:
    """Map each copy to the first file with the same content, for pairs of which at least one file is compressed."""
    if len(paths) < 2 or not any(map(opening.is_packed, paths)):
        return {}
    return _first_alike(paths, opening.head, _same_content)


def _first_alike(
    paths: Iterable[Path], mark: Callable[[Path], Hashable], same: Callable[[Path, Path], bool]
) -> dict[Path, Path]:
    """Map each copy to the first equal file. `mark`: a value that equal files share. `same`: the full comparison, made
    only for files with equal marks."""
    alike: dict[Hashable, list[Path]] = {}
    found: dict[Path, Path] = {}
    for path in paths:
        try:
            earlier = alike.setdefault(mark(path), [])
            original = next((one for one in earlier if same(one, path)), None)
        except (UnreadableRecording, OSError):
            continue
        if original is None:
            earlier.append(path)
        else:
            found[path] = original
    return found


def _same_content(one: Path, other: Path) -> bool:
    if not opening.is_packed(one) and not opening.is_packed(other):
        return False  # `_of_the_same_bytes` has compared these files
    with opening.content(one) as ours, opening.content(other) as theirs:
        while True:
            parts = ours.read(_CHUNK), theirs.read(_CHUNK)
            if parts[0] != parts[1] or not parts[0]:
                return parts[0] == parts[1]


def _of_a_shared_size(paths: Iterable[Path]) -> dict[Path, int]:
    sizes: dict[Path, int] = {}
    for path in paths:
        try:
            sizes[path] = path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    counts = Counter(sizes.values())
    return {path: size for path, size in sizes.items() if size and counts[size] > 1}


def _ends(path: Path, size: int) -> tuple[bytes, bytes]:
    with open_regular(path) as file:
        begin = file.read(_END_BYTES)
        file.seek(max(0, size - _END_BYTES))
        return begin, file.read()
