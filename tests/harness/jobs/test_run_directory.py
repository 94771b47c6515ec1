"""The run directory: what is done, what is missing, what is damaged."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.jobs import sweep
from harness.jobs.run_directory import RunDirectory, check_space
from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import Cell, RunRecord, SweepRecord, read_sweep
from profiles.scaling import run_directory

CELL = Cell("mlp", 2, 8, steps=3)


def record(launch: int = 0, status: str = "interrupted") -> RunRecord:
    return RunRecord(CELL, launch, status, "", 1, 0, [], "mpirun", {})


def directory(path: Path) -> RunDirectory:
    return RunDirectory.create(path / "out", SweepRecord([CELL], 2, "mpirun"))


def write_ranks(folder: Path, count: int) -> None:
    for k in range(count):
        write_rank(folder / f"rank{k}.jsonl", RankRecord(k, 2, k, "a", None, 0, 30, 24, [10] * 3, [0] * 3))


def test_a_file_system_without_locks_keeps_a_sweep_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_lock)
    folder = directory(tmp_path).path
    kept = (folder / "sweep.json").read_bytes()
    with pytest.raises(RingscopeError, match="holds a sweep already"):
        directory(tmp_path)
    assert (folder / "sweep.json").read_bytes() == kept


@pytest.mark.parametrize(("options", "verb"), [({}, "bench"), ({"fits": {"up_to": 8}}, "fits")])
def test_a_sweep_that_is_there_is_continued_by_a_verb_that_can(
    tmp_path: Path, options: dict[str, Any], verb: str
) -> None:
    sweep = SweepRecord([CELL], 2, "mpirun", options=options)
    RunDirectory.create(tmp_path, sweep).release()
    with pytest.raises(RingscopeError, match=f"continue it with ringscope {verb} --resume --out {tmp_path}$"):
        RunDirectory.create(tmp_path, sweep)


def test_a_launch_cut_short_is_missing_and_what_it_left_is_kept(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    folder = runs.begin(record())
    (folder / "rank0.log").write_text("half a story")
    assert sweep.missing(runs) == [(CELL, 0), (CELL, 1)]
    runs.begin(record())
    assert [path.read_text() for path in runs.path.rglob("rank0.log")] == ["half a story"]


def test_a_launch_whose_ranks_have_all_written_is_not_repeated(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    write_ranks(runs.begin(record()), 2)
    assert sweep.missing(runs) == [(CELL, 1)]
    assert json.loads((runs.launch_dir(CELL, 0) / "record.json").read_text())["status"] == "ok"


def test_a_launch_that_is_found_whole_later_ended_when_its_ranks_did(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    write_ranks(runs.begin(record()), 2)
    runs._lock.close()  # as when its process ends
    assert RunDirectory.resume(runs.path, []).done(CELL, 0)
    assert json.loads((runs.launch_dir(CELL, 0) / "record.json").read_text())["finished_utc_ns"] == 30


@pytest.mark.parametrize("set_by_s", [-3600, 3600])
def test_a_clock_that_is_set_while_a_launch_runs_makes_it_no_longer(
    set_by_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = directory(tmp_path)
    begun = replace(record(), started_utc_ns=time.time_ns())
    runs.begin(begun)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + set_by_s * 10**9)
    runs.finish(begun, "failed", "")
    assert 0 <= begun.finished_utc_ns - begun.started_utc_ns < 600 * 10**9


def test_a_launch_with_one_rank_missing_is_repeated(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    write_ranks(runs.begin(record()), 1)
    assert (CELL, 0) in sweep.missing(runs)


def test_a_failed_launch_is_repeated_only_when_asked(tmp_path: Path) -> None:
    runs = directory(tmp_path)
    runs.begin(record())
    runs.finish(record(), "failed", "for a test")
    assert sweep.missing(runs) == [(CELL, 1)]
    assert sweep.missing(runs, retry_failed=True) == [(CELL, 0), (CELL, 1)]


def test_a_new_sweep_does_not_write_over_an_old_one(tmp_path: Path) -> None:
    directory(tmp_path)
    with pytest.raises(RingscopeError, match="--resume"):
        directory(tmp_path)


def test_two_sweeps_that_begin_in_one_directory_leave_the_first_alone(tmp_path: Path) -> None:
    first = directory(tmp_path)
    (first.path / "sweep.json").unlink()  # as if it had only locked the directory so far
    with pytest.raises(RingscopeError, match="another ringscope works on it"):
        directory(tmp_path)
    assert not (first.path / "sweep.json").exists()
    first.write_sweep()
    with pytest.raises(RingscopeError, match="another ringscope works on it"):
        directory(tmp_path)
    first.release()
    assert read_sweep(first.path).cells == [CELL]


def test_a_resumed_sweep_can_grow(tmp_path: Path) -> None:
    old = directory(tmp_path)
    old._lock.close()
    more = replace(CELL, ranks=1)
    grown = RunDirectory.resume(old.path, [CELL, more], launches=3)
    assert (grown.sweep.cells, grown.sweep.launches) == ([CELL, more], 3)
    assert len(sweep.missing(grown)) == 6


def test_a_full_disk_is_said_before_anything_is_begun(tmp_path: Path) -> None:
    with pytest.raises(RingscopeError, match="--resume"):
        check_space(tmp_path / "new" / "out", need_bytes=10**18)


def test_a_sweep_on_a_full_disk_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    with pytest.raises(RingscopeError, match=r"make room"):
        directory(tmp_path / "new" / "folder")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RingscopeError, match="file/out: Not a directory"):
        RunDirectory.create(tmp_path / "file" / "out", SweepRecord([CELL], 2, "mpirun"))


# Damage to a run directory


@pytest.fixture
def measured(tmp_path: Path) -> RunDirectory:
    """Two launches that are ok."""
    runs = directory(tmp_path)
    for launch in (0, 1):
        write_ranks(runs.begin(record(launch)), 2)
        runs.finish(record(launch), "ok", "")
    assert sweep.missing(runs) == []
    return runs


def cut(path: Path) -> None:
    text = path.read_text()
    path.write_text(text[: len(text) // 2])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a rank's record is gone": lambda folder: (folder / "rank0.jsonl").unlink(),
    "a rank's record is empty": lambda folder: (folder / "rank1.jsonl").write_text("") and None,
    "a rank's record is cut": lambda folder: cut(folder / "rank0.jsonl"),
    "the record is empty": lambda folder: (folder / "record.json").write_text("") and None,
    "the record is cut": lambda folder: cut(folder / "record.json"),
    "the record is of another type": lambda folder: (folder / "record.json").write_text("[]") and None,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_launch_is_a_row_with_its_reason_and_is_run_again(
    damage: Callable[[Path], None], measured: RunDirectory
) -> None:
    damage(measured.launch_dir(CELL, 0))
    rows = {row.launch: row for row in run_directory.read(measured.path).launches}
    assert (rows[0].status, rows[1].status) == ("damaged", "ok")
    assert rows[0].samples_per_s_global is None
    assert rows[0].reason.startswith(str(measured.launch_dir(CELL, 0))) and "run that cell again" in rows[0].reason
    assert sweep.missing(measured) == [(CELL, 0)]


def test_a_strange_folder_does_not_block_a_sweep(measured: RunDirectory) -> None:
    (measured.path / "no-cell" / "0").mkdir(parents=True)
    (measured.path / "no-cell" / "0" / "record.json").write_text("")
    assert [row.status for row in run_directory.read(measured.path).launches] == ["ok", "ok"]


def test_a_damaged_sweep_does_not_hide_the_others(measured: RunDirectory) -> None:
    (measured.path.parent / "cut").mkdir()
    (measured.path.parent / "cut" / "sweep.json").write_text("{")
    assert run_directory.newest(measured.path.parent) == measured.path


def test_what_is_renamed_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace_ = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: done.append("fsync") or sync(number))
    monkeypatch.setattr(Path, "replace", lambda self, to: done.append("rename") or replace_(self, to))
    write_whole(tmp_path / "file", "text")
    assert done == ["fsync", "rename"] and (tmp_path / "file").read_text() == "text"
