"""Turn a profiler's files of a launch into one recording per rank, with `measures.json` beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from profiles.ground.errors import RingscopeError
from profiles.ground.files import in_order, write_whole
from profiles.ground.numbers import share as percent
from profiles.measuring.subject import load
from profiles.metrics import host_places
from profiles.model import measures_json
from profiles.model.measures import Measures
from profiles.model.places import SAMPLED
from profiles.readers import read
from profiles.readers.nsys.report import run_export
from profiles.verdicts import places

from .. import launch
from ..launch import tensorflow_profiler
from ..launch.profilers import Profiler
from ..processes.lifeline import Lifeline

_TOLD = 0.01  # a line of the user's code that takes less of the time is not reported


def collect(profiler: Profiler, folder: Path) -> list[Path]:
    """The recordings in `folder`, one per rank: nsys reports are exported to SQLite, recordings by a framework's
    profiler are moved up into `folder`.

    No export outlives this process, even after KeyboardInterrupt or kill -9. Raises RingscopeError if there is no
    recording, or an export fails.
    """
    if profiler.name == "nsys":
        if reports := in_order(folder.glob("rank*.nsys-rep")):
            _export_all(str(profiler.path), reports)
        found = in_order(folder.glob("rank*.sqlite"))
    elif profiler.name == "nvprof":
        found = in_order(folder.glob("rank*.nvvp"))
    else:
        for directory in in_order(folder.glob("rank*.xplane")):
            tensorflow_profiler.take_out(directory)
        found = in_order(path for suffix in profiler.suffixes for path in folder.glob(f"rank*{suffix}"))
    if not found:
        if raw := in_order(folder.glob("rank*.qdstrm")):
            raise RingscopeError(
                f"{raw[0]}: nsys wrote this file and could not make a report of it; on a machine with the whole Nsight "
                "Systems run `QdstrmImporter -i FILE`, then `ringscope timeline` on the .nsys-rep"
            )
        log = folder / "rank0.log"  # only cells have a log; a user's command printed to the terminal
        see = f"see {log.name} there" if log.exists() else "see what the command printed: perhaps it ended too soon"
        raise RingscopeError(f"{folder}: {profiler.spoken} wrote no recording; {see}")
    return found


def write_measures(recordings: Sequence[Path]) -> Measures:
    """Measure the recordings of one launch. Raises RingscopeError if they hold no GPU work, or none can be read."""
    measures = load(list(recordings)).measures
    assert measures is not None  # the caller gave no recordings that are unreadable
    write_whole(recordings[0].with_name("measures.json"), measures_json.dumps(measures))
    return measures


def of_the_host(recordings: Sequence[Path]) -> list[str]:
    """A text for each line of the user's code that takes at least 1 % of the time, longest first, then one for each
    recording with too few samples of the lines; only for recordings without a GPU."""
    told: list[tuple[float, str]] = []
    for path in recordings:
        try:
            timeline = read(path)
            found = host_places.measure(timeline)
        except RingscopeError:
            continue
        if found is None or not found.span_ns:
            continue
        whole = "the steps' time" if found.of_steps else "the recorded time"
        rows = [row for row in found.places.rows if places.is_the_users(row) and row.total_ns >= _TOLD * found.span_ns]
        for place in rows:
            share, where = place.total_ns / found.span_ns, f"{places.told(place)}{places.mostly(place)}"
            text = f"{path.name}: {places.code_of(place)}: {percent(share)} of {whole} in {where}"
            told.append((share, f"{text}\n  → {places.remedy(place)}"))
        if any(row.kind in SAMPLED for row in rows):  # known by samples, not by ranges
            told += [(0.0, f"{one.text}\n  → {one.next}") for one in timeline.doubts if one.code == "places-few"]
    return [text for _, text in sorted(told, key=lambda one: -one[0])]


def _export_all(nsys: str, reports: Sequence[Path]) -> None:
    """Export the reports, as many at once as there are cores. Each export has a keeper, because a thread that waits for
    a process gets no signal."""
    at_once = min(len(reports), len(os.sched_getaffinity(0)))
    with Lifeline(lines=at_once + 1) as lifeline, ThreadPoolExecutor(at_once) as pool:
        kept = launch.keeper([nsys], lifeline=lifeline.address)
        try:
            list(pool.map(partial(_export, kept), reports))
        except KeyboardInterrupt:
            lifeline.close()
            raise


def _export(nsys: Sequence[str], report: Path) -> None:
    """Export one report to SQLite. The file gets its name when complete, so that a killed export is not taken for a
    recording."""
    partial_file = report.with_name(f".{report.stem}.partial.sqlite")  # nsys adds the suffix .sqlite if it is missing
    done = run_export(nsys, report, partial_file, kept=True)
    if done.returncode or not partial_file.is_file():
        partial_file.unlink(missing_ok=True)
        words = (done.stderr or done.stdout).strip().splitlines()
        raise RingscopeError(
            f"{report}: nsys export failed ({words[-1] if words else 'it printed no reason'}); export this report by "
            "hand"
        )
    partial_file.replace(report.with_suffix(".sqlite"))
