"""Read all recordings at paths: files, directories, globs and archives, each content once."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..doubts import recordings as doubts
from ..ground.errors import NcclLog, SameRecording, UnreadableRecording
from ..ground.files import in_order
from ..model.timeline import Doubt, Timeline
from ..runs.written import of_a_run
from . import archives, duplicates
from .formats import read, read_if_known
from .progress import heard_by

# Called with (number of files done, with the fraction read of the current one; number of files; the current file).
Progress = Callable[[float, float, Path], None]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class File:
    """One file to read. `folder`: the directory or archive in which it was found, None if the user named the file.
    `called`: its name in reports. `original`: the name in reports of an earlier file with the same content."""

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
    """Read every recording at `paths` (files, directories, globs, .tar archives compressed or not), in order.

    Also returns a doubt for each file that cannot be read. Files in a directory that are no recordings are
    skipped, and counted in a doubt `skipped-files`, except the harness's own files in a run directory.
    `progress`: called with (files done, with the fraction read of the current one; number of files; path). Raises
    UnreadableRecording if no file can be read, or, if `strict`, at the first that cannot.
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
    """The files at `paths`. Files of archives are unpacked into a temporary directory for as long as the context
    lasts."""
    with ExitStack() as unpacked:
        files: list[File] = []
        for path in (Path(path) for given in paths for path in _globbed(str(given))):
            if path.is_dir():
                files += [File(inner, path, inner) for inner in _within(path)]
            elif members := unpacked.enter_context(archives.members(path, max_bytes)):
                files += [File(inner, path, called) for inner, called in members.items()]
            else:
                files.append(File(path, None, path))
        if not files:
            raise _nothing(", ".join(map(str, paths)) or "nothing")
        yield _each_once(files)


def _nothing(where: str) -> UnreadableRecording:
    return UnreadableRecording(where, "no recordings there", "name files, or a directory with recordings")


def _each_once(files: Sequence[File]) -> list[File]:
    """The files, each path once; `original` is set in a file that has the content of an earlier one."""
    once: dict[str, File] = {}
    for file in files:
        once.setdefault(os.path.abspath(file.path), file)
    called = {file.path: file.called for file in once.values()}
    for path, original in duplicates.originals(called).items():
        place = os.path.abspath(path)
        once[place] = dataclasses.replace(once[place], original=called[original])
    return list(once.values())


def read_file(file: File, *, max_bytes: int | None = None, cache: bool = True) -> Timeline | None:
    """Read the file; None if it was found in a directory and no reader knows its content.

    Raises UnreadableRecording.
    """
    try:
        timeline = (read if file.folder is None else read_if_known)(file.path, max_bytes=max_bytes, cache=cache)
    except UnreadableRecording as error:
        if file.called == file.path:
            raise
        raise UnreadableRecording(file.called, error.problem, error.remedy) from None
    if timeline is None:
        return None
    if file.original:  # only for recordings, since other files may well be copies of each other
        raise SameRecording(file.called, f"the same recording as {file.original}", "name one of them")
    return dataclasses.replace(timeline, recording=dataclasses.replace(timeline.recording, path=str(file.called)))


def sorted_out(
    files: Sequence[File], made: Iterable[Made | None | UnreadableRecording], *, strict: bool
) -> tuple[list[tuple[File, Made]], list[Doubt]]:
    """Sort results: (files with their results, doubts about files that failed or were skipped).

    `made`: for each file its result, an error, or None if it is no recording. Raises UnreadableRecording if no
    file has a result, or, if `strict`, at the first error.
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
    if failures:  # a log of NCCL goes first, since callers can read such logs in another way
        raise next((one for one in failures if isinstance(one, NcclLog)), failures[0])
    where = ", ".join(map(str, dict.fromkeys(file.folder or file.path for file in files)))
    raise _nothing(where)


def heard(progress: Progress | None, done: int, total: int, path: Path) -> AbstractContextManager[None]:
    """Report to `progress` how much of the file has been read, while the body of the context reads it."""
    tell = partial(_tell, progress, done, total, path)
    tell(0)
    return heard_by(tell)


def _tell(progress: Progress | None, done: int, total: int, path: Path, share: float) -> None:
    if progress:
        progress(done + share, total, path)


def _globbed(given: str) -> list[str]:
    if os.path.lexists(given) or not glob.has_magic(given):
        return [given]
    found = list(map(str, in_order(map(Path, glob.glob(given, recursive=True)))))
    if not found:
        raise UnreadableRecording(given, "no file matches", "check the pattern")
    return found


def _within(folder: Path) -> Iterator[Path]:
    """The regular files under a directory, in order, except a .nsys-rep or .qdrep whose .sqlite export lies beside it.

    Folders and links that cannot be opened are included, so that the error about them is reported.
    """
    closed: list[OSError] = []
    files = [Path(parent, name) for parent, _, names in os.walk(folder, onerror=closed.append) for name in names]
    for path in in_order([*files, *(Path(error.filename) for error in closed)]):
        exported = path.suffix in (".nsys-rep", ".qdrep") and _is_there(path.with_suffix(".sqlite"))
        if _is_there(path) and not exported:
            yield path


def _is_there(path: Path) -> bool:
    """True for a file or folder, and for a path that may not be examined, so that opening it will report the error."""
    try:
        return path.is_file() or path.is_dir()
    except OSError:
        return True
