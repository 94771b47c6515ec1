"""What a person is told while a sweep runs."""

from __future__ import annotations

import io

from harness.jobs.progress import Watch
from harness.processes.supervise import Progress
from profiles.ground.terminals import console
from profiles.runs.cell import in_words
from profiles.runs.records import Cell, RunRecord

QUICK, SLOW = Cell("mlp", 1, 8), Cell("resnet50", 2, 8)


def record(cell: Cell, status: str = "ok", reason: str = "") -> RunRecord:
    return RunRecord(cell, 0, status, reason, 0, 0, [], "mpirun", {})


def test_the_time_left_counts_each_cell_by_its_own_launches() -> None:
    with Watch([(QUICK, 0), (SLOW, 0), (QUICK, 1), (SLOW, 1)], console(file=io.StringIO())) as watch:
        left_s = []
        for cell, took_s in ((QUICK, 10), (SLOW, 100), (QUICK, 10), (SLOW, 100)):
            watch.begun(cell)
            watch.ended(record(cell), took_s)
            left_s.append(watch.left_s())
    assert left_s == [30, 110, 100, 0]  # what has not run yet is taken to be as usual


def test_without_a_terminal_each_launch_is_a_line() -> None:
    out = io.StringIO()
    with Watch([(QUICK, 0), (SLOW, 0)], console(file=out, width=200)) as watch:
        watch.begun(QUICK)
        watch.moved(Progress("train", 3, 40))
        watch.ended(record(QUICK), 12)
        watch.begun(SLOW)
        watch.ended(record(SLOW, "oom", "rank 1: [no] memory"), 3)
    quick, slow = out.getvalue().splitlines()
    assert all(part in quick for part in ("1/2 ", in_words(QUICK), " ok ", "12 s"))
    assert all(part in slow for part in (in_words(SLOW), " oom:", "[no] memory"))


def test_in_a_terminal_there_is_a_bar_with_the_time_left_and_the_step() -> None:
    out = io.StringIO()
    with Watch([(QUICK, 0), (SLOW, 0)], console(file=out, width=120, force_terminal=True)) as watch:
        watch.begun(QUICK)
        watch.ended(record(QUICK), 75)
        watch.begun(SLOW)
        watch.moved(Progress("train", 3, 40))
    assert "1/2" in out.getvalue() and "1 min 15 s left" in out.getvalue() and "train step 3 of 40" in out.getvalue()


def test_a_cell_is_told_apart_by_what_is_unusual() -> None:
    assert in_words(Cell("gru", 4, 256, step="compiled")) == "gru x4, 256 per rank, step compiled"
