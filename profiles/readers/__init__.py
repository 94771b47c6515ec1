"""A reader per format; picked by content, never by file name.

A reader is a module with two functions:

    detects(head, path) -> bool     head: the first HEAD_BYTES of what is in the file; path: that file, for formats that
                                    need a further look. Cheap, and never raises.
    read(path) -> Timeline          raises UnreadableRecording where the file is of its format and cannot be read

Readers see a plain regular file: opening, decompression, a rank from marks or file name, and the path as the user wrote
it are looked after here.
"""

from __future__ import annotations

import dataclasses
import glob
import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from .. import marks
from ..doubts import recordings as doubts
from ..errors import UnreadableRecording
from ..files import in_order
from ..records import of_a_run
from ..timeline import Doubt, Timeline
from . import opening, refused
from .nsys import report
from .progress import heard_by

Detects = Callable[[bytes, Path], bool]
Read = Callable[[Path], Timeline]


_FORMATS = (
    "nsys.sqlite",
    "nvprof.sqlite",
    "nvprof.csv",
    "nsys.stats_csv",
    "chrome.kineto",
    "chrome.horovod",
    "xplane",
)


def formats() -> Iterator[tuple[Detects, Read]]:
    """The readers in the order they are asked; each is imported only when it is its turn."""
    for name in _FORMATS:
        module = importlib.import_module(f".{name}", __name__)
        yield module.detects, module.read


def read(path: str | Path, *, max_bytes: int | None = None, cache: bool = True) -> Timeline:
    """The one recording at `path`, compressed or not.

    max_bytes: how far a compressed file may unfold (default 64 GiB and 1000:1). cache: keep what `nsys export` makes of
    a .nsys-rep for the next time. Raises UnreadableRecording, which says what is wrong and what to do.
    """
    timeline = _read(Path(path), max_bytes=max_bytes, cache=cache)
    if timeline is None:
        raise UnreadableRecording(path, *refused.unknown(opening.head(Path(path)), Path(path)))
    return timeline


def read_all(
    paths: Iterable[str | Path],
    *,
    max_bytes: int | None = None,
    cache: bool = True,
    strict: bool = False,
    progress: Callable[[float, float, Path], None] | None = None,
) -> tuple[list[Timeline], list[Doubt]]:
    """Every recording at `paths` (files, directories, globs, .tar archives compressed or not) in order, and a doubt for
    each that cannot be read.

    In a directory files that are no recordings are skipped, and, less those of a run, counted in a doubt
    `skipped-files`. progress is called
    with (files done, parts of one included, files in all, path). Raises UnreadableRecording if none can be read, or
    with `strict` at the first that cannot.
    """
    with ExitStack() as unpacked:
        return _read_all(paths, unpacked, max_bytes, cache, strict, progress)


def _read_all(
    paths: Iterable[str | Path],
    unpacked: ExitStack,
    max_bytes: int | None,
    cache: bool,
    strict: bool,
    progress: Callable[[float, float, Path], None] | None,
) -> tuple[list[Timeline], list[Doubt]]:
    named = [Path(path) for given in paths for path in _globbed(str(given))]
    files: list[tuple[Path, Path | None]] = []
    inside: dict[Path, Path] = {}  # files of archives, and what they are called there
    for path in named:
        if path.is_dir():
            files += [(inner, path) for inner in _within(path)]
        elif members := unpacked.enter_context(opening.members(path, max_bytes)):
            inside |= members
            files += [(inner, path) for inner in members]
        else:
            files.append((path, None))
    timelines: list[Timeline] = []
    found: list[Doubt] = []
    skipped: dict[Path, int] = {}
    failures: list[UnreadableRecording] = []
    for done, (path, folder) in enumerate(files):
        tell = partial(_tell, progress, done, len(files), path)
        tell(0)
        try:
            with heard_by(tell):
                one = read if folder is None else _read
                timeline = one(path, max_bytes=max_bytes, cache=cache)
        except UnreadableRecording as error:
            if path in inside:
                error = UnreadableRecording(inside[path], error.problem, error.remedy)
            if strict:
                raise error from None
            failures.append(error)
            found.append(doubts.unreadable(error))
            continue
        if timeline is not None:
            called = dataclasses.replace(timeline.recording, path=str(inside.get(path, path)))
            timelines.append(dataclasses.replace(timeline, recording=called))
        elif folder is not None and not of_a_run(path):
            skipped[folder] = skipped.get(folder, 0) + 1
    for folder, count in skipped.items():
        found.append(doubts.skipped_files(folder, count))
    if timelines:
        return timelines, found
    if failures:
        raise failures[0]
    where = ", ".join(map(str, named)) or "nothing"
    raise UnreadableRecording(where, "no recordings there", "name files, or a directory with recordings")


def _tell(
    progress: Callable[[float, float, Path], None] | None, done: int, total: int, path: Path, share: float
) -> None:
    if progress:
        progress(done + share, total, path)


def _read(path: Path, *, max_bytes: int | None, cache: bool) -> Timeline | None:
    """None: no reader knows this content."""
    with opened(path, max_bytes=max_bytes, cache=cache) as file:
        with file.open("rb") as stream:
            head = stream.read(opening.HEAD_BYTES)
        if said := refused.stranger(head):
            raise UnreadableRecording(path, *said)
        for detects, reader in formats():
            if detects(head, file):
                timeline = reader(file)
                recording = dataclasses.replace(timeline.recording, path=str(path))
                return _with_rank(dataclasses.replace(timeline, recording=recording), path)
        if reason := refused.recognised(head, file):
            raise UnreadableRecording(path, *reason)
    return None


@contextmanager
def opened(path: Path, *, max_bytes: int | None = None, cache: bool = True) -> Iterator[Path]:
    """A plain file with what is at `path`: unfolded where it is compressed, exported where it is a .nsys-rep.

    An UnreadableRecording from within about that file is raised about `path`.
    """
    with opening.plain(path, max_bytes) as unfolded, report.exported(unfolded, cache=cache) as file:
        try:
            yield file
        except UnreadableRecording as error:
            if file == path or error.path != str(file):
                raise
            raise UnreadableRecording(path, error.problem, error.remedy) from None


_RANK_NAME = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d+)(?![0-9])", re.IGNORECASE)


def _with_rank(timeline: Timeline, path: Path) -> Timeline:
    """The rank from the harness's mark `rank k of n`, else as the format told, else from `rank<k>` in the file name.

    A recording of several ranks has none of its own, and its GPUs have those that their processes' marks tell.
    """
    told = {rank.number for rank in marks.ranks(timeline).values()}
    rank, source = timeline.recording.rank, timeline.recording.rank_source
    if told:
        rank, source = told.pop() if len(told) == 1 else None, "marks"
    elif rank is None and (match := _RANK_NAME.search(path.name)):
        rank, source = int(match.group(1)), "file-name"
    return dataclasses.replace(
        timeline, recording=dataclasses.replace(timeline.recording, rank=rank, rank_source=source)
    )


def _globbed(given: str) -> list[str]:
    if os.path.lexists(given) or not glob.has_magic(given):
        return [given]
    found = list(map(str, in_order(map(Path, glob.glob(given, recursive=True)))))
    if not found:
        raise UnreadableRecording(given, "no file matches", "check the pattern")
    return found


def _within(folder: Path) -> Iterator[Path]:
    """The regular files under a directory, but a .nsys-rep whose export lies beside it: one stem is one recording.

    And folders that cannot be looked into, which are not passed over in silence.
    """
    closed: list[OSError] = []
    files = [Path(parent, name) for parent, _, names in os.walk(folder, onerror=closed.append) for name in names]
    for path in in_order([*files, *(Path(error.filename) for error in closed)]):
        exported = path.suffix in (".nsys-rep", ".qdrep") and path.with_suffix(".sqlite").is_file()
        if (path.is_file() and not exported) or path.is_dir():
            yield path
