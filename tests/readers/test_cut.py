"""Slices: a new file that holds the span, and an old one that is as it was. Real recordings of ours, and built ones."""

from __future__ import annotations

import lzma
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import measure, readers
from profiles.ground.errors import RingscopeError, UnreadableRecording
from profiles.model.timeline import Timeline
from profiles.readers import cut
from profiles.readers.span import Span, parsed

from ..recordings import OURS, SHARED, fingerprint, needs_shared, rows, tables

MS = 1_000_000


def columns(table: pd.DataFrame) -> list[tuple[object, ...]]:
    texts = {name: str for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}
    return sorted(table.astype(texts).itertuples(index=False, name=None))


def joined_by(table: pd.DataFrame) -> pd.Series:
    return pd.Series(list(zip(table["pid"], table["correlation"], strict=True)), index=table.index, dtype=object)


def is_step(marks: pd.DataFrame) -> pd.Series:
    return marks["name"].astype(str).str.startswith("step")


def steps_of(timeline: Timeline) -> dict[str, bool]:
    """The names of the marks of steps, and which have no end."""
    marks = timeline.marks[is_step(timeline.marks)]
    return dict(zip(marks["name"].astype(str), marks["open"].tolist(), strict=True))


def touching(table: pd.DataFrame, low: int, high: int) -> pd.Series:
    return (table["start_ns"] < high) & (table["end_ns"] > low)


@pytest.mark.parametrize("path", OURS[:1], ids=lambda path: path.name)
def test_a_slice_holds_what_touches_the_span_and_what_was_launched_in_it(path: Path, tmp_path: Path) -> None:
    low, high = 837 * MS, 1209 * MS
    target = tmp_path / "new.sqlite"
    cut.write(path, target, within=Span(low, high))
    whole, part = readers.read(path), readers.read(target)
    calls = whole.api[(whole.api["start_ns"] >= low) & (whole.api["start_ns"] < high)]
    launched = set(joined_by(calls))
    kept: set[tuple[int, int]] = set()
    for name in ("kernels", "copies", "memsets"):
        table = getattr(whole, name)
        stays = touching(table, low, high) | joined_by(table).isin(launched)
        assert columns(getattr(part, name)) == columns(table[stays])
        kept |= set(joined_by(table[stays]))
    api = whole.api
    stays = touching(api, low, high) | joined_by(api).isin(kept)
    assert columns(part.api) == columns(api[stays])
    marks = whole.marks
    stays = (marks["start_ns"] < high) & ((marks["end_ns"] > low) | (marks["start_ns"] >= low))
    step = is_step(marks)
    assert columns(part.marks[~is_step(part.marks)]) == columns(marks[stays & ~step])
    assert steps_of(part) == {"step 4": False, "step 5": False, "step 6": True}
    assert part.recording.origin_utc_ns == whole.recording.origin_utc_ns
    assert part.devices.equals(whole.devices)


@needs_shared
@pytest.mark.exhaustive  # neither the recordings nor what is cut of them change; generated ones are cut below
def test_the_recordings_in_tests_are_slices_of_the_whole_ones(tmp_path: Path) -> None:
    """Real: what is committed is what `cut --time --shrink --strip-private` makes of the shared ones."""
    spans = {
        "resnet50-2gpu-device": parsed("640ms:1765ms"),
        "resnet50-2gpu-prefetch": parsed("640ms:1825ms"),
    }
    shared = [path for path in OURS if path.name.split(".")[0] in spans]
    assert len(shared) == 4
    for path in shared:
        target = tmp_path / path.stem
        within = spans[path.name.split(".")[0]]
        cut.write(SHARED / "h200" / path.name, target, within=within, shrink=True, strip_private=True)
        made, kept = readers.read(target), readers.read(path)
        for name in ("kernels", "copies", "memsets", "api", "syncs"):
            assert columns(getattr(made, name)) == columns(getattr(kept, name))
        # They were cut when a mark that the span cuts through was left out.
        inside = made.marks[(made.marks["start_ns"] >= within.start_ns) & (made.marks["end_ns"] < within.end_ns)]
        assert columns(inside[~inside["open"]]) == columns(kept.marks[kept.marks["start_ns"] >= within.start_ns])
        assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_a_slice_keeps_schema_rank_and_whole_steps(kind: str, tmp_path: Path) -> None:
    shape = Shape(steps=8, kernels=20, gpus=2, processes=2)
    source, target = tmp_path / "whole", tmp_path / "part"
    WRITERS[kind](shape, source, range(1, 2))
    whole = readers.read(source)
    steps = whole.marks[is_step(whole.marks)]
    low, high = int(steps["start_ns"].iloc[2]), int(steps["end_ns"].iloc[5])
    cut.write(source, target, within=Span(low, high))
    part = readers.read(target)
    assert part.recording.rank == 1 and part.recording.rank_source == "marks"
    assert steps_of(part) == dict.fromkeys((f"step {n}" for n in (2, 3, 4, 5)), False)
    assert tables(source) == tables(target)
    version = "SELECT * FROM META_DATA_EXPORT" if kind == "nsys" else "SELECT * FROM Version"
    assert rows(source, version) == rows(target, version)
    # Each marked step has every kernel it had.
    shift = part.recording.origin_ns - whole.recording.origin_ns
    launched = part.kernels.merge(part.api, on=["pid", "correlation"], suffixes=("", "_call"))
    within = launched[(launched["start_ns_call"] + shift >= low) & (launched["start_ns_call"] + shift < high)]
    before = whole.kernels.merge(whole.api, on=["pid", "correlation"], suffixes=("", "_call"))
    assert len(within) == ((before["start_ns_call"] >= low) & (before["start_ns_call"] < high)).sum() > 0


def measured(timeline: Timeline) -> dict[tuple[int, int], tuple[int, int, int]]:
    """By GPU and step: its start, end and kernels."""
    origin = timeline.recording.origin_ns
    return {
        (gpu.device, row.step): (row.start_ns + origin, row.end_ns + origin, row.kernels)
        for gpu in measure(timeline).gpus
        if gpu.steps.source == "marks"
        for row in gpu.steps.rows
    }


@pytest.mark.parametrize("kind", ["nsys", "nvprof", pytest.param("real", marks=pytest.mark.ci)])
def test_a_step_that_the_span_cuts_through_is_never_measured_as_a_whole_one(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "whole"
    if kind == "real":
        source = OURS[0]
    else:
        WRITERS[kind](Shape(steps=8, kernels=20, gpus=2, processes=2), source, range(1, 2))
    whole = readers.read(source)
    of_whole = measured(whole)
    first, last = int(whole.kernels["start_ns"].min()), int(whole.kernels["end_ns"].max())
    found = 0
    for number in range(5):
        low, high = first + (last - first) * number // 17, last - (last - first) * (number * 3 % 5) // 17
        target = tmp_path / f"part {number}"
        cut.write(source, target, within=Span(low, high))
        part = measured(readers.read(target))
        assert {step: part[step] for step in part if step in of_whole} == {
            step: of_whole[step] for step in part if step in of_whole
        }
        found += len(part)
    assert found


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_a_range_that_the_span_cuts_through_stays_and_the_step_around_the_end_has_no_end(
    kind: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "whole", tmp_path / "part"
    WRITERS[kind](Shape(steps=8, kernels=20, gpus=2, processes=2), source, range(1, 2))
    whole = readers.read(source)
    waits = whole.marks[(whole.marks["name"] == "wait input").to_numpy()]
    low, high = (int(waits[["start_ns", "end_ns"]].iloc[at].mean()) for at in (2, 5))
    cut.write(source, target, within=Span(low, high))
    part = readers.read(target)
    shift = part.recording.origin_ns - whole.recording.origin_ns
    kept = part.marks[(part.marks["name"] == "wait input").to_numpy()]
    assert (kept["start_ns"] + shift).tolist() == waits["start_ns"].iloc[2:6].tolist()
    assert (kept["end_ns"] + shift).tolist() == waits["end_ns"].iloc[2:6].tolist()
    assert steps_of(part) == {"step 3": False, "step 4": False, "step 5": True}


@needs_shared
def test_a_real_nvprof_recording_keeps_its_tables_indexes_and_numbers(tmp_path: Path) -> None:
    source = SHARED / "public" / "nvprof-sqlite" / "ort-training.nvvp"
    whole = readers.read(source)
    middle = int(whole.kernels["start_ns"].median())
    kept = cut.write(source, tmp_path / "new.nvvp", within=Span(middle - 50 * MS, middle + 50 * MS))
    schema = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
    assert rows(source, schema) == rows(tmp_path / "new.nvvp", schema)
    assert rows(source, "SELECT * FROM sqlite_sequence ORDER BY 1") == rows(
        tmp_path / "new.nvvp", "SELECT * FROM sqlite_sequence ORDER BY 1"
    )
    assert rows(tmp_path / "new.nvvp", "PRAGMA integrity_check") == [("ok",)]
    part = readers.read(tmp_path / "new.nvvp")
    assert 0 < len(part.kernels) < len(whole.kernels) and 0 < len(part.marks) < len(whole.marks)
    assert not part.marks["open"].any()
    before, after = kept["CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"]
    assert (before, after) == (len(whole.kernels), len(part.kernels))
    marker = "CUPTI_ACTIVITY_KIND_MARKER"
    orphans = f"SELECT COUNT(*) FROM {marker}_DATA WHERE id NOT IN (SELECT id FROM {marker})"
    assert rows(tmp_path / "new.nvvp", orphans) == [(0,)]


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_shrinking_changes_no_table_of_the_timeline(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "whole"
    WRITERS[kind](Shape(steps=4, kernels=20, gpus=2, processes=1), source, None)
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("CREATE TABLE OSRT_API (start, end, nameId)")
        connection.executemany("INSERT INTO OSRT_API VALUES (?, ?, 0)", [(n, n + 1) for n in range(100_000)])
    cut.write(source, tmp_path / "small", shrink=True)
    assert (tmp_path / "small").stat().st_size < source.stat().st_size / 2
    whole, small = readers.read(source), readers.read(tmp_path / "small")
    for name in ("kernels", "copies", "memsets", "api", "marks", "syncs", "overheads", "devices"):
        assert columns(getattr(small, name)) == columns(getattr(whole, name))


def test_the_old_file_is_never_touched_and_nothing_is_left_behind(tmp_path: Path) -> None:
    source = tmp_path / "whole.sqlite"
    WRITERS["nsys"](Shape(steps=4, kernels=20, gpus=2, processes=1), source, None)
    before = fingerprint(tmp_path)[source.name]
    for target in (source, tmp_path / "other"):
        (tmp_path / "other").write_text("precious")
        with pytest.raises(RingscopeError, match="exists already"):
            cut.write(source, target, shrink=True)
    with pytest.raises(RingscopeError, match="no GPU work in that span"):
        cut.write(source, tmp_path / "new", within=Span(10**18, 10**18 + 5))
    with pytest.raises(RingscopeError, match="no such directory"):
        cut.write(source, tmp_path / "none" / "new", shrink=True)
    assert fingerprint(tmp_path)[source.name] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "whole.sqlite"]
    assert (tmp_path / "other").read_text() == "precious"


def test_a_compressed_recording_can_be_cut_and_others_cannot(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    WRITERS["nsys"](Shape(steps=4, kernels=20, gpus=2, processes=1), plain, None)
    (tmp_path / "a.xz").write_bytes(lzma.compress(plain.read_bytes()))
    cut.write(tmp_path / "a.xz", tmp_path / "new", shrink=True)
    assert len(readers.read(tmp_path / "new").kernels) == len(readers.read(plain).kernels)
    WRITERS["nvprof-csv"](Shape(steps=4, kernels=20, gpus=2, processes=1), tmp_path / "csv", None)
    with pytest.raises(UnreadableRecording, match="only SQLite recordings"):
        cut.write(tmp_path / "csv", tmp_path / "cut", shrink=True)


def test_an_index_of_values_that_are_longer_than_the_file_is_not_computed(tmp_path: Path) -> None:
    """Each row would take a tenth of a second and as much memory as the expression says."""
    WRITERS["nsys"](Shape(steps=4, kernels=20, gpus=1, processes=1), tmp_path / "run.sqlite", None)
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as connection:
        connection.execute("CREATE INDEX wide ON TARGET_INFO_GPU (length(hex(zeroblob(8000000))))")
        connection.commit()
    with pytest.raises(UnreadableRecording, match="too big"):
        cut.write(tmp_path / "run.sqlite", tmp_path / "cut.sqlite", shrink=True)
    assert [one.name for one in tmp_path.iterdir()] == ["run.sqlite"]


def test_spans_are_exact_and_bad_ones_are_refused() -> None:
    assert parsed("12.5s:14s") == Span(12_500_000_000, 14_000_000_000)
    assert parsed("300ms:") == Span(300_000_000, None) and parsed(":40us") == Span(None, 40_000)
    assert parsed("0.000000001:7ns") == Span(1, 7)
    assert parsed("1700000000.123456789s:") == Span(1_700_000_000_123_456_789, None)
    assert parsed("-5ms:5ms") == Span(-5_000_000, 5_000_000)
    for bad, said in {
        "5": "not a span of time",
        "1:2:3": "not a span of time",
        "x:1s": "'x' is not a time",
        "1h:2h": "is not a time",
        "1.2.3:4": "is not a time",
        "2s:1s": "the span ends before it starts",
        "1s:1s": "the span ends before it starts",
    }.items():
        with pytest.raises(RingscopeError, match=said):
            parsed(bad)


@pytest.mark.root
def test_a_full_disk_is_not_called_a_damaged_recording(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        with pytest.raises(RingscopeError, match=r"small/new\.sqlite: no space is left on its disk; name another with"):
            cut.write(OURS[0], small / "new.sqlite", within=Span(837 * MS, 1209 * MS))
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)
