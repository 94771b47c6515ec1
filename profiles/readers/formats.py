"""Read recordings: one reader per format, chosen by the file's content, never by its name.

A reader is a module with two functions:

    detects(head, path) -> bool     head: the first HEAD_BYTES of the file's content; path: the file, for formats that
                                    need a further look. Cheap, and never raises.
    read(path) -> Timeline          raises UnreadableRecording if the file has this format but cannot be read

Readers get a plain regular file. This module opens and decompresses it, finds the rank from marks or the file name, and
names files in errors as the user wrote them. all_files.py finds the files of directories and archives.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..doubts import recordings as doubts
from ..ground.errors import NcclLog, UnreadableRecording
from ..ground.files import open_regular
from ..model import marks
from ..model.timeline import Doubt, Timeline
from . import opening, refused, sampled
from .nsys import report

MOST_GPUS = MOST_PROCESSES = 1 << 10  # the most of each in one recording, because each is measured by itself
Detects = Callable[[bytes, Path], bool]
Read = Callable[[Path], Timeline]
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
    """The readers in the order in which they are tried. Each is imported only when its turn comes."""
    for name in _FORMATS:
        module = importlib.import_module(f".{name}", __package__)
        yield module.detects, module.read


def read(path: str | Path, *, max_bytes: int | None = None, cache: bool = True) -> Timeline:
    """Read one recording, compressed or not.

    `max_bytes`: the most decompressed bytes (default 64 GiB, and 1000 times the compressed size). `cache`: keep the
    export of a .nsys-rep for the next time. Raises UnreadableRecording, which says what is wrong and what to do.
    """
    timeline = read_if_known(Path(path), max_bytes=max_bytes, cache=cache)
    if timeline is None:
        raise UnreadableRecording(path, *refused.unknown(opening.head(Path(path)), Path(path)))
    return timeline


def read_if_known(path: Path, *, max_bytes: int | None, cache: bool) -> Timeline | None:
    """The timeline of the recording at `path`; None if no reader knows its content."""
    with opened(path, max_bytes=max_bytes, cache=cache) as file:
        return _by_its_reader(path, file)


def _by_its_reader(path: Path, file: Path) -> Timeline | None:
    """The timeline in `file`, the decompressed or exported form of `path`; None if no reader knows its content."""
    with open_regular(file) as stream:
        head = stream.read(opening.HEAD_BYTES)
    if refused.is_inspector_log(head) or refused.is_plugin_log(head):
        raise NcclLog(path, *refused.NCCL_LOG)
    if said := refused.stranger(head):
        raise UnreadableRecording(path, *said)
    if refused.is_drawn(head):
        return None
    for detects, reader in formats():
        if detects(head, file):
            timeline = reader(file)
            _check_counts(path, timeline)
            recording = dataclasses.replace(timeline.recording, path=str(path))
            doubted = (*timeline.doubts, *doubts.rows_left_out(timeline.impossible), *_without_length(timeline))
            timeline = dataclasses.replace(timeline, recording=recording, doubts=doubted)
            return sampled.beside(path, _with_rank(timeline, path))
    if reason := refused.recognised(head, file):
        raise UnreadableRecording(path, *reason)
    return None


def _without_length(timeline: Timeline) -> list[Doubt]:
    """A doubt if 1 % of the kernels or more last 0 ns. On a clock of whole microseconds, short kernels may."""
    start, end = (timeline.kernels[column].to_numpy() for column in ("start_ns", "end_ns"))
    count = int((start == end).sum())
    coarse = any(doubt.code == "coarse-times" for doubt in timeline.doubts)
    return [doubts.without_length(count, len(start))] if count and 100 * count >= len(start) and not coarse else []


def _check_counts(path: Path, timeline: Timeline) -> None:
    """Raises UnreadableRecording if there are too many GPUs or processes, since each is measured by itself."""
    if (gpus := len(timeline.devices)) > MOST_GPUS:
        problem = f"it names {gpus:,} GPUs, more than any host has, so the numbers of its devices are damaged"
        raise UnreadableRecording(path, problem, "copy it again, or record it again")
    tables = (timeline.kernels, timeline.graphs, timeline.copies, timeline.memsets, timeline.api)
    processes = len(set().union(*(table["pid"].unique().tolist() for table in tables)))
    if processes > MOST_PROCESSES:
        problem = f"it holds the GPU work of {processes:,} processes, but one recording may hold {MOST_PROCESSES:,}"
        raise UnreadableRecording(path, problem, "record the training alone, without other programs")


@contextmanager
def opened(path: Path, *, max_bytes: int | None = None, cache: bool = True) -> Iterator[Path]:
    """A plain file with the content of `path`: decompressed if need be, and exported to SQLite if it is a .nsys-rep.

    An UnreadableRecording about the plain file, raised in the body of the context, is raised again about `path`.
    """
    with opening.plain(path, max_bytes) as unfolded, report.exported(unfolded, cache=cache) as file:
        try:
            yield file
        except UnreadableRecording as error:
            if file == path or error.path != str(file):
                raise
            raise UnreadableRecording(path, error.problem, error.remedy) from None


def _is_of_several(timeline: Timeline) -> bool:
    """True if several processes ran kernels, on several GPUs: perhaps each is a rank, started by the script."""
    return all(timeline.kernels[one].nunique() > 1 for one in ("pid", "device"))


_RANK_NAME = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d{1,9})(?![0-9])", re.IGNORECASE)


def _with_rank(timeline: Timeline, path: Path) -> Timeline:
    """Set the recording's rank: from the mark `rank k of n`, else from the format, else from `rank<k>` in the file
    name, unless several processes used several GPUs. A recording of several ranks gets none: there, the marks of each
    process give the rank of its GPU."""
    told = {rank.number for rank in marks.ranks(timeline).values()}
    rank, source = timeline.recording.rank, timeline.recording.rank_source
    if told:
        rank, source = told.pop() if len(told) == 1 else None, "marks"
    elif rank is None and (match := _RANK_NAME.search(path.name)) and not _is_of_several(timeline):
        rank, source = int(match.group(1)), "file-name"
    return dataclasses.replace(
        timeline, recording=dataclasses.replace(timeline.recording, rank=rank, rank_source=source)
    )
