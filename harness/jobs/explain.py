"""Extra launches that explain why N ranks of a sweep are not N times as fast as one.

With GPUs each model is recorded on one rank and on the most ranks. Without a GPU, the most ranks train once more
without exchanging gradients (profiles.explaining.explained evaluates both). The launches lie in `explain/`, a run
directory of its own inside the sweep's: `--resume` continues it, and a failed launch is a record in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from profiles.explaining import explained, pairs
from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell, Run, SweepRecord, read_runs
from profiles.scaling.measure import Scaling

from ..launch import profilers
from . import measuring, sweep
from .run_directory import RunDirectory, check_space
from .times import Times

# The part of a sweep's time that explaining may take; more if the sweep has time left.
SHARE = 1 / 3
RECORDED_STEPS = 12  # like `ringscope record`
# Two launches without exchanging gradients, so that one disturbed launch does not decide.
UNEXCHANGED = 2
# A recorded launch takes this many times as long as a timed one: profiling, exporting and measuring are added.
RECORDING_TAKES = 1.5

Launch = Callable[[Sequence[sweep.Task], RunDirectory, sweep.How, Callable[[sweep.Task], bool]], None]


@dataclass(slots=True)
class Budget:
    """The time for all launches that explain. limit_s: None for no limit."""

    limit_s: float | None
    usual_s: dict[Cell, float]  # expected seconds of one launch, from the timed launches
    spent_s: float = 0.0
    left_out: int = 0
    # launches left out that would have been the first of their cell, without which the cell explains nothing
    untold: int = 0

    def allows(self, task: sweep.Task) -> bool:
        """True if there is time for this launch; its expected time then counts as spent."""
        expected_s = self.usual_s[task[0]]
        if self.limit_s is not None and self.spent_s + expected_s > self.limit_s:
            self.left_out += 1
            self.untold += task[1] == 0
            return False
        self.spent_s += expected_s
        return True


def explain(
    directory: RunDirectory,
    scaling: Scaling,
    runs: Sequence[Run],
    how: sweep.How,
    console: Console,
    launch: Launch,
    *,
    allowed_s: Callable[[float], float | None],
) -> int:
    """Make the launches that explain a sweep and are still missing. Returns the number of launches left out for lack of
    time, if a cell has none at all because of them, else 0.

    scaling, runs: the timed launches. launch: runs tasks in a run directory; before each task it asks whether there is
    time for it. allowed_s: seconds that explaining has taken so far -> seconds that it may take in all, or None for no
    limit; then failed launches are repeated.
    """
    on_gpus = any(rank.device for run in runs for rank in run.ranks)
    how = replace(how, profiler=profilers.choose() if on_gpus else None)
    tasks, usual_s = planned(scaling, how)
    if not tasks:
        return 0
    inside = _folder(directory, tasks, how)
    records = [run.record for run in read_runs(inside.path)]
    spent_s = sum(max(0, record.finished_utc_ns - record.started_utc_ns) for record in records) / 1e9
    limit_s = allowed_s(spent_s)
    missing = [task for task in tasks if not inside.done(*task, retry_failed=limit_s is None)]
    budget = Budget(limit_s, usual_s, spent_s)
    if missing:
        how_made = f"recorded by {how.profiler.name}" if how.profiler else "without the exchange of gradients"
        if most := sum(map(replace(budget).allows, missing)):
            console.print(f"to explain the losses, at most {numbers.counted(most, 'more launch')}, {how_made}")
        if how.profiler:
            check_space(inside.path, max(cell.ranks for cell, _ in missing) * profilers.BYTES_A_RANK)
        launch(missing, inside, how, budget.allows)
    if how.profiler:
        with console.status(f"measuring what {how.profiler.name} recorded"):
            _measure(inside, how.profiler)
    return budget.left_out if budget.untold else 0


def planned(scaling: Scaling, how: sweep.How) -> tuple[list[sweep.Task], dict[Cell, float]]:
    """The launches that explain a sweep: the first launch of every model, then the second ones; also the expected
    seconds of each."""
    times = Times(how.gpus, scaling.launches)
    tasks: list[sweep.Task] = []
    usual_s: dict[Cell, float] = {}
    for pair in pairs.pairs(scaling):
        if how.profiler:
            for cell in (pair.one, pair.many):
                recorded = pairs.short(cell, RECORDED_STEPS)
                tasks.append((recorded, 0))
                usual_s[recorded] = RECORDING_TAKES * times.next_s(cell)
        elif pair.many.strategy != "independent" and (alone := pairs.exchanging_nothing(pair.many)) is not None:
            tasks += [(alone, number) for number in range(UNEXCHANGED)]
            usual_s[alone] = times.next_s(pair.many)
    return sorted(tasks, key=lambda task: task[1]), usual_s


def _folder(directory: RunDirectory, tasks: Sequence[sweep.Task], how: sweep.How) -> RunDirectory:
    """The run directory `explain/`; cells of the tasks that it does not have yet are added."""
    path = directory.path / explained.FOLDER
    cells = list(dict.fromkeys(cell for cell, _ in tasks))
    launches = 1 + max(number for _, number in tasks)
    if (path / "sweep.json").exists():
        inside = RunDirectory.resume(path, cells, launches=launches)
    else:
        options = {"profiler": how.profiler.name if how.profiler else None}
        record = SweepRecord(cells, launches, how.launcher, directory.sweep.hosts, time.time_ns(), options=options)
        inside = RunDirectory.create(path, record)
    inside.sweep.machine = directory.sweep.machine
    inside.write_sweep()
    return inside


def _measure(inside: RunDirectory, profiler: profilers.Profiler) -> None:
    """Measure the recordings that are not measured yet. A launch that cannot be measured is recorded as failed, with
    the reason."""
    for run in read_runs(inside.path):
        if run.record.status != "ok" or not run.record.profiled or (run.directory / "measures.json").exists():
            continue
        try:
            measuring.write_measures(measuring.collect(profiler, run.directory))
        except RingscopeError as error:
            inside.finish(run.record, "failed", f"recorded but not measured: {error}")
