"""A few launches beside a sweep's timed ones, which tell why N ranks are not N times one.

With GPUs each model is recorded once on one rank and once on the most; without, launches on the most ranks exchange
nothing (profiles.explaining.explained says what is made of them). They lie in `explain/` of the run directory, which is
a sweep of its own: resumed like one, and a fault there is a row there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from profiles.explaining import explained, pairs
from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell, Run, SweepRecord, read_runs
from profiles.scaling.measure import Scaling

from ..launch import profilers
from . import measuring, sweep
from .run_directory import RunDirectory, check_space
from .times import Times

# Of the whole sweep's time, these launches with it, unless more is left of what the sweep may take.
SHARE = 1 / 3
RECORDED_STEPS = 12  # as `ringscope record` does
# Launches that exchange nothing: two, so that one which something else disturbed does not count.
UNEXCHANGED = 2
# A recorded launch against a timed one of the cell: the profiler, its export, measuring.
RECORDING_TAKES = 1.5

Launch = Callable[[Sequence[sweep.Task], RunDirectory, sweep.How, Callable[[sweep.Task], bool]], None]


@dataclass(slots=True)
class Budget:
    """The time that launches may still take; `limit_s` None: as long as they do."""

    limit_s: float | None
    usual_s: dict[Cell, float]  # what a launch takes, as far as the timed ones tell
    spent_s: float = 0.0
    left_out: int = 0
    untold: int = 0  # of those left out the first ones: without a second one less is known, without the first nothing

    def allows(self, task: sweep.Task) -> bool:
        """True if a launch may begin, which then counts as spent."""
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
) -> None:
    """Launch what is missing.

    scaling, runs: of the timed launches. launch: launches tasks in a directory, as long as they are allowed.
    allowed_s: seconds that these launches took before -> that they may take in all; None whatever they take, and then
    what failed is tried again.
    """
    on_gpus = any(rank.device for run in runs for rank in run.ranks)
    how = replace(how, profiler=profilers.choose() if on_gpus else None)
    tasks, usual_s = planned(scaling, how)
    if not tasks:
        return
    inside = _folder(directory, tasks, how)
    spent_s = sum(map(_took_s, read_runs(inside.path)))
    limit_s = allowed_s(spent_s)
    missing = [task for task in tasks if not inside.done(*task, retry_failed=limit_s is None)]
    budget = Budget(limit_s, usual_s, spent_s)
    if missing:
        by = how.profiler.name if how.profiler else "launches without the exchange"
        if most := sum(map(replace(budget).allows, missing)):
            console.print(f"launches that explain the losses, by {by}: at most {most} more")
        if how.profiler:
            check_space(inside.path, max(cell.ranks for cell, _ in missing) * profilers.BYTES_A_RANK)
        launch(missing, inside, how, budget.allows)
    if budget.untold:
        again = f"ringscope bench --resume --explain --out {directory.path}"
        console.print(f"{budget.left_out} launches were left out to save time; to run them: {again}", soft_wrap=True)
    if how.profiler:
        with console.status(f"measuring what {how.profiler.name} recorded"):
            _measure(inside, how.profiler)


def planned(scaling: Scaling, how: sweep.How) -> tuple[list[sweep.Task], dict[Cell, float]]:
    """The launches that explain a sweep, one for every model before a second one, and the expected time of each."""
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


def _took_s(run: Run) -> float:
    return max(0, run.record.finished_utc_ns - run.record.started_utc_ns) / 1e9


def _folder(directory: RunDirectory, tasks: Sequence[sweep.Task], how: sweep.How) -> RunDirectory:
    """`explain/`, with the cells of the tasks; what else it holds stays."""
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
    """Measure what was recorded and is not measured yet; what cannot be becomes a failed launch, with the reason."""
    for run in read_runs(inside.path):
        if run.record.status != "ok" or not run.record.profiled or (run.directory / "measures.json").exists():
            continue
        try:
            measuring.write_measures(measuring.collect(profiler, run.directory))
        except RingscopeError as error:
            inside.finish(run.record, "failed", f"recorded, and not measured: {error}")
