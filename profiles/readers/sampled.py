"""Read samples of a process's Python stacks (`rank<k>.places.json` beside its recording) onto the recording's clock.

The process writes marks `clock N` into the recording, where N is the time in ns on the clock of the samples. A
mark begins a little after N is read, so the smallest difference (start of the mark minus N) is the offset of the
clocks; the median difference minus the smallest is its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..doubts.recordings import samples_few, samples_not_aligned, samples_unreadable
from ..ground import typed
from ..ground.files import bytes_of
from ..model import marks
from ..model.names import rows_named
from ..model.timeline import LONGEST_NAME, Timeline, with_samples
from .tables import printed

if TYPE_CHECKING:
    import pandas as pd

_ALIGNED_NS = 1_000_000  # with a larger error of the clocks, an idle span may be blamed on a neighbouring line of code
_LIMIT_NS = 1 << 61
_FEW = 50  # with fewer samples, in one of twenty recordings a share of time is wrong by 14 percentage points
_TEXTS = ("file", "function", "via", "source")  # fields of _Place that are texts


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    line: int
    function: str
    via: str
    framework: bool
    source: str = ""


@dataclass(frozen=True, slots=True)
class _Thread:
    steps: bool
    start_ns: list[int]
    at_ns: list[int]
    end_ns: list[int]
    place: list[int]


@dataclass(frozen=True, slots=True)
class _Samples:
    schema: str
    pid: int
    hz: int
    began_ns: int
    began_utc_ns: int
    places: list[_Place]
    threads: list[_Thread]
    samples: int | None = None  # number of looks at the threads; None in files of older versions


def beside(path: Path, timeline: Timeline) -> Timeline:
    """The timeline, with the samples from the file beside `path` if there is one. Faults of that file become doubts."""
    file = _file(path)
    if file is None:
        return timeline
    try:
        found = typed.decoded(_Samples, bytes_of(file))
        if found.schema != marks.SAMPLES_SCHEMA:
            raise ValueError(f"its schema is {found.schema[:40]!r}, not {marks.SAMPLES_SCHEMA}")
        columns = _columns(found)
    except (OSError, ValueError) as error:
        return with_samples(timeline, None, (samples_unreadable(file, str(error)),))
    offset_ns, why = _offset(timeline, found)
    doubts = (samples_not_aligned(file, why),) if why else ()
    if offset_ns is None:
        return with_samples(timeline, None, doubts)
    if found.samples is not None and found.samples < _FEW:
        doubts = (*doubts, samples_few(file, found.samples))
    pids = set(timeline.marks["pid"].unique().tolist()) | set(timeline.api["pid"].unique().tolist())
    pid = found.pid if found.pid in pids or len(pids) != 1 else pids.pop()  # some formats do not record process ids
    return with_samples(timeline, _frame(found, pid, offset_ns, columns), doubts)


def _file(path: Path) -> Path | None:
    """The file of samples: rank0.places.json beside rank0.sqlite or rank0.sqlite.xz, for instance; None without one."""
    name = path.name
    while "." in name:
        name = name.rpartition(".")[0]
        if name and (file := path.with_name(name + marks.SAMPLES)).is_file():
            return file
    return None


Columns = dict[str, NDArray[np.int64]]


def _columns(found: _Samples) -> Columns:
    """The spans of all threads, joined. Raises ValueError if spans overlap, run backwards, name a place that is not in
    the file, or have columns of different lengths; also if a text of a place is longer than LONGEST_NAME."""
    if any(len(getattr(one, name)) > LONGEST_NAME for one in found.places for name in _TEXTS):
        raise ValueError(f"a name in the recording is longer than {LONGEST_NAME >> 20} MiB")
    parts = [{name: np.empty(0, np.int64) for name in ("start_ns", "at_ns", "end_ns", "place", "thread", "steps")}]
    for number, thread in enumerate(found.threads):
        start, at, end, place = (
            np.array(one, np.int64) for one in (thread.start_ns, thread.at_ns, thread.end_ns, thread.place)
        )
        if not len(start) == len(at) == len(end) == len(place):
            raise ValueError(f"thread {number} has columns of different lengths")
        if len(start) and (
            start.min() <= -_LIMIT_NS
            or end.max() >= _LIMIT_NS
            or (at < start).any()
            or (end < at).any()
            or (start[1:] < end[:-1]).any()
        ):
            raise ValueError(f"the spans of thread {number} overlap or run backwards")
        if len(place) and not 0 <= place.min() <= place.max() < len(found.places):
            raise ValueError(f"thread {number} refers to code locations that the file does not list")
        some = end > start
        of_thread = {"thread": number, "steps": int(thread.steps)}
        parts.append(
            {"start_ns": start[some], "at_ns": at[some], "end_ns": end[some], "place": place[some]}
            | {name: np.full(int(some.sum()), value, np.int64) for name, value in of_thread.items()}
        )
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def _frame(found: _Samples, pid: int, offset_ns: int, columns: Columns) -> pd.DataFrame:
    import pandas as pd

    place, places = columns["place"], found.places
    texts = {name: printed.categorical(place, [getattr(one, name) for one in places]) for name in _TEXTS}
    line = np.array([one.line for one in places], np.int64)
    framework = np.array([one.framework for one in places], bool)
    return pd.DataFrame(
        {
            "start_ns": columns["start_ns"] + offset_ns,
            "at_ns": columns["at_ns"] + offset_ns,
            "end_ns": columns["end_ns"] + offset_ns,
            "pid": np.full(len(place), pid, np.int64),
            "tid": columns["thread"],
            "steps": columns["steps"] > 0,
            **texts,
            "line": line[place],
            "framework": framework[place],
        }
    )


def _offset(timeline: Timeline, found: _Samples) -> tuple[int | None, str]:
    """(ns to add to the samples' times, None if unknown; reason to doubt the alignment, "" for none)."""
    rows = rows_named(timeline.marks, marks.CLOCK, whole=True)
    clocks = timeline.marks["name"].iloc[rows].astype(str).tolist()
    told = np.array([int(name.rpartition(" ")[2]) for name in clocks], np.int64)
    if len(told):
        apart = timeline.marks["start_ns"].to_numpy()[rows] - told
        error = int(np.median(apart) - apart.min())
        doubt = f"the samples' clock may be off by up to {error / 1e6:.1f} ms" if error > _ALIGNED_NS else ""
        return int(apart.min()), doubt
    utc_ns = timeline.recording.origin_utc_ns
    if utc_ns is None:
        return None, "nothing in the recording relates the samples' clock to the GPU's, so the samples are left out"
    offset_ns = found.began_utc_ns - found.began_ns - utc_ns
    if abs(offset_ns) >= _LIMIT_NS:
        return None, "the samples' clock is centuries away from the recording's, so the samples are left out"
    return offset_ns, "the samples are aligned by the time of day, which may be a few ms off"
