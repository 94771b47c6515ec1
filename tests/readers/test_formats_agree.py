"""One generated run, written as each profiler would: every reader must make the same timeline of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.tables import EPOCH_NS, timeline
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.model.tables import IDS
from profiles.model.timeline import Timeline

ONE_PROCESS = Shape(steps=6, kernels=20, gpus=3, processes=1)
FOUR_RANKS = Shape(steps=5, kernels=24, gpus=4, processes=4)
KINDS = list(WRITERS)
ORDER = ["start_ns", "device", "stream"]


def written(kind: str, shape: Shape, folder: Path, gpus: range | None = None) -> Timeline:
    path = folder / "recording"
    WRITERS[kind](shape, path, gpus)
    return readers.read(path)


def comparable(read: Timeline, table: str, drop: tuple[str, ...] = ()) -> pd.DataFrame:
    """The table by start, texts as plain text, ids in one type, times from the first operation of the recording."""
    frame = getattr(read, table)
    frame = frame.astype({name: "int64" for name in IDS if name in frame})
    origin = min(t["start_ns"].min() for t in (read.kernels, read.copies, read.memsets))
    texts = {name: frame[name].astype(str) for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)}
    frame = frame.assign(**texts, start_ns=frame["start_ns"] - origin, end_ns=frame["end_ns"] - origin)
    by = [name for name in [*ORDER, "pid", "tid", "correlation"] if name in frame]
    return frame.sort_values(by, ignore_index=True).drop(columns=[name for name in drop if name in frame])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", ["kernels", "copies", "memsets"])
def test_every_format_tells_the_same_operations(kind: str, table: str, tmp_path: Path) -> None:
    # nvprof keeps no process of an operation but in its API rows, and Kineto none at all.
    drop = ("pid", "blocks") if kind == "kineto" else ("blocks",)
    read = written(kind, ONE_PROCESS, tmp_path)
    assert set(read.kernels["blocks"]) == ({128} if kind in ("nsys", "nvprof") else {0})
    found = comparable(read, table, drop)
    expected = comparable(timeline(ONE_PROCESS), table, drop)
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nvprof-csv"])
def test_every_format_with_calls_tells_the_same_calls(kind: str, tmp_path: Path) -> None:
    read = written(kind, ONE_PROCESS, tmp_path)
    found, expected = comparable(read, "api"), comparable(timeline(ONE_PROCESS), "api")
    found["name"] = found["name"].str.replace(r"_v\d+$", "", regex=True)
    assert "api" in read.known
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nvprof-csv"])
def test_every_format_with_marks_tells_the_same_marks(kind: str, tmp_path: Path) -> None:
    drop = ("domain",) if kind == "kineto" else ()
    read = written(kind, FOUR_RANKS, tmp_path, range(2, 3))
    found, expected = comparable(read, "marks", drop), comparable(timeline(FOUR_RANKS, range(2, 3)), "marks", drop)
    pd.testing.assert_frame_equal(found, expected)
    assert read.recording.rank == 2


def test_a_printed_trace_knows_no_calls_and_no_marks(tmp_path: Path) -> None:
    assert written("nvprof-csv", ONE_PROCESS, tmp_path).known == {"kernels", "copies", "memsets", "devices"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nvprof-csv"])
def test_the_first_operation_has_its_utc_time(kind: str, tmp_path: Path) -> None:
    read = written(kind, ONE_PROCESS, tmp_path)
    assert read.recording.origin_utc_ns is not None
    first = int(read.copies["start_ns"].min()) + read.recording.origin_utc_ns
    assert first == EPOCH_NS + int(ONE_PROCESS.feeds_ns()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_names_the_gpus(kind: str, tmp_path: Path) -> None:
    devices = written(kind, ONE_PROCESS, tmp_path).devices.sort_values("device")
    assert devices["device"].tolist() == [0, 1, 2]
    assert set(devices["name"]) == {"NVIDIA Generated"}


def test_chunks_of_any_size_make_the_same_run() -> None:
    from benchmarks.tables import chunks

    parts = list(chunks(FOUR_RANKS, rows=1))
    assert len(parts) == FOUR_RANKS.steps
    joined = pd.concat([part["kernels"] for part in parts])
    whole = timeline(FOUR_RANKS).kernels
    by = ["device", "start_ns"]
    np.testing.assert_array_equal(joined.sort_values(by)["end_ns"], whole.sort_values(by)["end_ns"])
