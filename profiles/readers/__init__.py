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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..doubts import recordings as doubts
from ..ground.errors import InspectorLog, SameRecording, UnreadableRecording
from ..ground.files import in_order
from ..model import marks
from ..model.timeline import Doubt, Timeline
from ..runs.written import of_a_run
from . import opening, refused, sampled, twice
from .nsys import report
from .progress import heard_by

Detects = Callable[[bytes, Path], bool]
Read = Callable[[Path], Timeline]
# Called with (files done, parts of one included; files in all; the file at hand).
Progress = Callable[[float, float, Path], None]
Made = TypeVar("Made")


_FORMATS = (
    "nsys.sqlite",
    "nvprof.sqlite",
    "nvprof.csv",
    "nsys.stats_csv",
    "rocprofv3.results",
    "rocprofv3.database",
    "chrome.rocprof",
    "xla_trace",
    "chrome.horovod",
    "chrome.kineto",
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


@dataclass(frozen=True, slots=True)
class File:
    """One file to read. `folder`: the directory or archive that it was found in, None where it was named; `called`:
    what it is called in reports; `original`: what an earlier one with the same bytes is called."""

    path: Path
    folder: Path | None
    called: Path
    original: Path | None = None


def read_all(
    paths: Iterable[str | Path],
    *,
    max_bytes: int | None = None,
    cache: bool = True,
    strict: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Timeline], list[Doubt]]:
    """Every recording at `paths` (files, directories, globs, .tar archives compressed or not) in order, and a doubt for
    each that cannot be read.

    In a directory files that are no recordings are skipped, and counted in a doubt `skipped-files` unless a run wrote
    them. progress is called
    with (files done, parts of one included, files in all, path). Raises UnreadableRecording if none can be read, or
    with `strict` at the first that cannot.
    """
    with listed(paths, max_bytes) as files:

        def each() -> Iterator[Timeline | None | UnreadableRecording]:
            for done, file in enumerate(files):
                try:
                    with heard(progress, done, len(files), file.path):
                        yield read_file(file, max_bytes=max_bytes, cache=cache)
                except UnreadableRecording as error:
                    yield error

        good, found = sorted_out(files, each(), strict=strict)
        return [timeline for _, timeline in good], found


@contextmanager
def listed(paths: Iterable[str | Path], max_bytes: int | None = None) -> Iterator[list[File]]:
    """The files at `paths`; an archive's files lie in a temporary directory meanwhile."""
    with ExitStack() as unpacked:
        files: list[File] = []
        for path in (Path(path) for given in paths for path in _globbed(str(given))):
            if path.is_dir():
                files += [File(inner, path, inner) for inner in _within(path)]
            elif members := unpacked.enter_context(opening.members(path, max_bytes)):
                files += [File(inner, path, called) for inner, called in members.items()]
            else:
                files.append(File(path, None, path))
        if not files:
            where = ", ".join(map(str, paths)) or "nothing"
            raise UnreadableRecording(where, "no recordings there", "name files, or a directory with recordings")
        yield _each_once(files)


def _each_once(files: Sequence[File]) -> list[File]:
    """A file that is named twice is there once; a copy knows what it is a copy of."""
    once: dict[str, File] = {}
    for file in files:
        once.setdefault(os.path.abspath(file.path), file)
    called = {file.path: file.called for file in once.values()}
    for path, original in twice.originals(called).items():
        place = os.path.abspath(path)
        once[place] = dataclasses.replace(once[place], original=called[original])
    return list(once.values())


def read_file(file: File, *, max_bytes: int | None = None, cache: bool = True) -> Timeline | None:
    """Read the file; None where it was found in a directory and no reader knows its content.

    Raises UnreadableRecording.
    """
    try:
        timeline = (read if file.folder is None else _read)(file.path, max_bytes=max_bytes, cache=cache)
    except UnreadableRecording as error:
        if file.called == file.path:
            raise
        raise UnreadableRecording(file.called, error.problem, error.remedy) from None
    if timeline is None:
        return None
    if file.original:  # of what is no recording, copies are nobody's concern
        raise SameRecording(file.called, f"the same recording as {file.original}", "name one of them")
    return dataclasses.replace(timeline, recording=dataclasses.replace(timeline.recording, path=str(file.called)))


def sorted_out(
    files: Sequence[File], made: Iterable[Made | None | UnreadableRecording], *, strict: bool
) -> tuple[list[tuple[File, Made]], list[Doubt]]:
    """Each file with what was made of it, where that went well, and doubts about the others.

    Raises UnreadableRecording if nothing could be made, or with `strict` at the first that could not.
    """
    good: list[tuple[File, Made]] = []
    found: list[Doubt] = []
    skipped: dict[Path, int] = {}
    failures: list[UnreadableRecording] = []
    for file, one in zip(files, made, strict=True):
        if isinstance(one, UnreadableRecording) and file.folder is not None and of_a_run(file.path):
            continue
        if isinstance(one, UnreadableRecording):
            if strict:
                raise one
            failures.append(one)
            found.append(doubts.unreadable(one))
        elif one is not None:
            good.append((file, one))
        elif file.folder is not None and not of_a_run(file.path):
            skipped[file.folder] = skipped.get(file.folder, 0) + 1
    found += [doubts.skipped_files(folder, count) for folder, count in skipped.items()]
    if good:
        return good, found
    if failures:  # all that is there may be logs of NCCL's Inspector, which are read another way
        raise next((one for one in failures if isinstance(one, InspectorLog)), failures[0])
    where = ", ".join(map(str, dict.fromkeys(file.folder or file.path for file in files)))
    raise UnreadableRecording(where, "no recordings there", "name files, or a directory with recordings")


@contextmanager
def heard(progress: Progress | None, done: int, total: int, path: Path) -> Iterator[None]:
    """Tells `progress` how far the file is that is read within."""
    tell = partial(_tell, progress, done, total, path)
    tell(0)
    with heard_by(tell):
        yield


def _tell(progress: Progress | None, done: int, total: int, path: Path, share: float) -> None:
    if progress:
        progress(done + share, total, path)


def _read(path: Path, *, max_bytes: int | None, cache: bool) -> Timeline | None:
    """None: no reader knows this content."""
    with opened(path, max_bytes=max_bytes, cache=cache) as file:
        return _by_its_reader(path, file)


def _by_its_reader(path: Path, file: Path) -> Timeline | None:
    """The timeline in `file`, which was found at `path`; None: no reader knows this content."""
    with file.open("rb") as stream:
        head = stream.read(opening.HEAD_BYTES)
    if refused.is_inspector_log(head):
        raise InspectorLog(path, *refused.INSPECTOR_LOG)
    if said := refused.stranger(head):
        raise UnreadableRecording(path, *said)
    if refused.is_drawn(head):
        return None
    for detects, reader in formats():
        if detects(head, file):
            timeline = reader(file)
            recording = dataclasses.replace(timeline.recording, path=str(path))
            impossible = [doubts.impossible_rows(timeline.impossible)] if timeline.impossible else []
            doubted = (*timeline.doubts, *impossible)
            timeline = dataclasses.replace(timeline, recording=recording, doubts=doubted)
            return sampled.beside(path, _with_rank(timeline, path))
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


_RANK_NAME = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d{1,9})(?![0-9])", re.IGNORECASE)


def _with_rank(timeline: Timeline, path: Path) -> Timeline:
    """The rank from the harness's mark `rank k of n`, else as the format told, else from `rank<k>` in the file name.

    A recording of several ranks has no rank of its own: each GPU has the rank that its process's mark tells.
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

    And folders and links that cannot be looked into, which are not passed over in silence.
    """
    closed: list[OSError] = []
    files = [Path(parent, name) for parent, _, names in os.walk(folder, onerror=closed.append) for name in names]
    for path in in_order([*files, *(Path(error.filename) for error in closed)]):
        exported = path.suffix in (".nsys-rep", ".qdrep") and _is_there(path.with_suffix(".sqlite"))
        if _is_there(path) and not exported:
            yield path


def _is_there(path: Path) -> bool:
    """A file, a folder, or what cannot even be asked, as a link into a folder that is closed: who opens it says why."""
    try:
        return path.is_file() or path.is_dir()
    except OSError:
        return True
