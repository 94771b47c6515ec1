"""Run a sweep: launch each scaling curve once, then show and explain it; then repeat the launches as often as the
options ask for, or as time allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rich.console import Console

from profiles.explaining import explained
from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell, read_runs
from profiles.scaling import run_directory
from profiles.views.terminal import sweep as view

from ..machine import describe as machine
from . import explain, sweep
from .progress import Watch, about
from .run_directory import RunDirectory
from .times import Times


@dataclass(slots=True)
class Rounds:
    """A sweep under way. launches: the most launches of a cell. limit_s: no round begins that would probably end later
    than this many seconds after `began_s` (on the monotonic clock); None for no limit. explain: True: always; False:
    never; None: if it takes little time."""

    directory: RunDirectory
    how: sweep.How
    console: Console
    launches: int
    limit_s: float | None = None
    explain: bool | None = None
    retry_failed: bool = False
    began_s: float = field(default_factory=time.monotonic)
    # empty until the machine is described before the first launch
    _machine: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        """Make the launches that are missing. Raises KeyboardInterrupt if a signal stops the sweep."""
        first = self._missing(0)
        for model, curves in groupby(sweep.curves(self.directory.sweep.cells), key=lambda curve: curve[0].model):
            if any([self._curve(curve, [task for task in first if task[0] in curve]) for curve in curves]):
                self._explain(model)
        for number in range(1, self.launches):
            if not self._begins(number):
                break
            self._launch(self._missing(number))
        # explained once more, since later launches may show that another setting is faster
        if left_out := self._explain():
            again = f"ringscope bench --resume --explain --out {self.directory.path}"
            what = f"{numbers.counted(left_out, 'launch')} {'was' if left_out == 1 else 'were'}"
            self.console.print(f"{what} left out to save time; to run what is missing: {again}", soft_wrap=True)

    def plan(self) -> str:
        """A line that says what will be launched, and how long that takes."""
        cells = self.directory.sweep.cells
        begun = range(self.directory.sweep.launches)
        count = sum(len(self._missing(number)) for number in begun)
        said = f"{numbers.counted(len(cells), 'cell')}, {numbers.counted(count, 'launch')} to do"
        if count == 0:
            return said
        times, first = self._times(), self._missing(0)
        for curve in sweep.curves([cell for cell, _ in first])[:1]:
            ranks = ", ".join(str(cell.ranks) for cell in curve) + (" ranks" if curve[-1].ranks > 1 else " rank")
            seconds = sum(map(times.next_s, curve))
            said += f": first {curve[0].model} on {ranks} ({about(seconds)})"
        said += f", all cells {about(sum(times.next_s(cell) for n in begun for cell, _ in self._missing(n)))}"
        more = [] if self.explain is False else ["launches that explain the losses"]
        more += ["more launches, within " + about(self.limit_s)] if self.limit_s else []
        if self.limit_s is not None and self.launches > len(begun) and more:
            said += f"; then {', and '.join(more)}"
        return said

    def _missing(self, number: int) -> list[sweep.Task]:
        tasks = [task for task in sweep.order(self.directory.sweep.cells, number + 1) if task[1] == number]
        return [task for task in tasks if not self.directory.done(*task, retry_failed=self.retry_failed)]

    def _curve(self, curve: Sequence[Cell], tasks: Sequence[sweep.Task]) -> bool:
        """Make the launches that are missing for a first view of a scaling curve, and show the curve. Returns True if
        any were missing."""
        self._launch(tasks)
        if tasks and len(sweep.curves(self.directory.sweep.cells)) > 1:
            view.show_curve(run_directory.read(self.directory.path), curve, self.console)
        return bool(tasks)

    def _begins(self, number: int) -> bool:
        """True if another round of all cells is to begin; then the sweep's record counts it."""
        if number < self.directory.sweep.launches:
            return True
        expected_s = sum(map(self._times().next_s, self.directory.sweep.cells))
        if self.limit_s is not None and self._elapsed_s() + expected_s > self.limit_s:
            return False
        self.directory.sweep.launches = number + 1
        self.directory.write_sweep()
        return True

    def _launch(
        self,
        tasks: Sequence[sweep.Task],
        inside: RunDirectory | None = None,
        how: sweep.How | None = None,
        allowed: Callable[[sweep.Task], bool] = lambda task: True,
    ) -> None:
        """Launch the tasks one after the other; a task for which `allowed` returns False at its turn is left out."""
        if not tasks:
            return
        found, each = self._described() if inside is None else inside.sweep.machine, filter(allowed, tasks)
        with Watch(tasks, self.console) as watch:
            sweep.run(inside or self.directory, each, how=how or self.how, machine=found, watcher=watch)

    def _described(self) -> dict[str, Any]:
        """Describe the machine, once; it may not be the machine on which the sweep began."""
        if not self._machine:
            with self.console.status("looking at this machine"):
                self._machine = machine.describe()
        if not self.directory.sweep.machine:
            self.directory.sweep.machine = self._machine
            self.directory.write_sweep()
        return self._machine

    def _explain(self, model: str | None = None) -> int:
        """Make the launches that explain why N ranks are not N times as fast. With a model, show its explanation.
        Returns the number of launches that were left out for lack of time."""
        if self.explain is False:
            return 0
        try:
            runs = read_runs(self.directory.path)
            scaling = run_directory.read(self.directory.path, runs)
            left_out = explain.explain(
                self.directory, scaling, runs, self.how, self.console, self._launch, allowed_s=self._allowed_s
            )
        except RingscopeError as error:  # the sweep's own results are complete without the explanation
            self.console.print(f"not explained: {error}", style="red", soft_wrap=True)
            return 0
        if model is not None and len({cell.model for cell in self.directory.sweep.cells}) > 1:
            _, found = explained.told(scaling, runs, self.directory.path)
            shown = [one for one in found if one.model == model and one.method]
            view.show_explained(shown, str(self.directory.path), self.console)
        return left_out

    def _allowed_s(self, spent_s: float) -> float | None:
        """Seconds that explaining may take in all: a third of the sweep, or the time left after every cell's first
        launch if that is more. None for no limit. spent_s: seconds that it has taken so far."""
        if self.explain:
            return None
        sweep_, times = self.directory.sweep, self._times()
        third_s = times.planned_s(sweep_.cells, sweep_.launches) * explain.SHARE / (1 - explain.SHARE)
        if self.limit_s is None:
            return third_s
        rest_s = sum(times.next_s(cell) for cell, _ in self._missing(0))
        return max(third_s, spent_s + self.limit_s - self._elapsed_s() - rest_s)

    def _times(self) -> Times:
        return Times(self.how.gpus, run_directory.read(self.directory.path).launches)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self.began_s
