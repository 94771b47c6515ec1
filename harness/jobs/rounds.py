"""A sweep from its first launch to its last: each curve once, shown and explained as soon as it is whole; then again,
as often as is asked for or as its time allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rich.console import Console

from profiles.explaining import explained
from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell, read_runs
from profiles.scaling import run_directory
from profiles.views.terminal import sweep as view

from ..machine import describe as machine
from . import explain, sweep
from .progress import Watch, about, counted
from .run_directory import RunDirectory
from .times import Times


@dataclass(slots=True)
class Rounds:
    """A sweep under way. launches: of a cell at most. limit_s: no round begins that would end later than so many
    seconds after `began_s`, on the monotonic clock; None: all of them do. explain: asked for, refused, or as time
    allows.
    """

    directory: RunDirectory
    how: sweep.How
    console: Console
    launches: int
    limit_s: float | None = None
    explain: bool | None = None
    retry_failed: bool = False
    began_s: float = field(default_factory=time.monotonic)
    _machine: dict[str, Any] = field(default_factory=dict)  # once it has been looked at

    def run(self) -> None:
        """Launch what is missing. Raises KeyboardInterrupt where a person, or the machine's end, stops it."""
        first = self._missing(0)
        for model, curves in groupby(sweep.curves(self.directory.sweep.cells), key=lambda curve: curve[0].model):
            if any([self._curve(curve, [task for task in first if task[0] in curve]) for curve in curves]):
                self._explain(model)
        for number in range(1, self.launches):
            if not self._begins(number):
                break
            self._launch(self._missing(number))
        self._explain()  # also where later launches have found other settings to be faster

    def plan(self) -> str:
        """A line that says what is to be done, and how long it takes."""
        cells = self.directory.sweep.cells
        begun = range(self.directory.sweep.launches)
        count = sum(len(self._missing(number)) for number in begun)
        said = f"{counted(len(cells), 'cell')}, {counted(count, 'launch')} to do"
        if count == 0:
            return said
        times, first = self._times(), self._missing(0)
        for curve in sweep.curves([cell for cell, _ in first])[:1]:
            ranks = ", ".join(str(cell.ranks) for cell in curve)
            seconds = sum(map(times.next_s, curve))
            said += f": first {curve[0].model} on {ranks} ({about(seconds)})"
        said += f", all {about(sum(times.next_s(cell) for n in begun for cell, _ in self._missing(n)))}"
        if self.limit_s is not None and self.launches > len(begun):
            said += f"; then the launches that explain losses, and each cell again, within {about(self.limit_s)}"
        return said

    def _missing(self, number: int) -> list[sweep.Task]:
        tasks = [task for task in sweep.order(self.directory.sweep.cells, number + 1) if task[1] == number]
        return [task for task in tasks if not self.directory.done(*task, retry_failed=self.retry_failed)]

    def _curve(self, curve: Sequence[Cell], tasks: Sequence[sweep.Task]) -> bool:
        """Launch what is missing of a curve once and show it; whether anything was."""
        self._launch(tasks)
        if tasks and len(sweep.curves(self.directory.sweep.cells)) > 1:
            view.show_curve(run_directory.read(self.directory.path), curve, self.console)
        return bool(tasks)

    def _begins(self, number: int) -> bool:
        """True if every cell is launched once more, which the sweep then remembers."""
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
        """The tasks that are allowed when it is their turn, one after the other."""
        if not tasks:
            return
        found, each = self._described() if inside is None else inside.sweep.machine, filter(allowed, tasks)
        with Watch(tasks, self.console) as watch:
            sweep.run(inside or self.directory, each, how=how or self.how, machine=found, watcher=watch)

    def _described(self) -> dict[str, Any]:
        """The machine as it is now, which may be another than the one that the sweep was begun on."""
        if not self._machine:
            with self.console.status("looking at this machine"):
                self._machine = machine.describe()
        if not self.directory.sweep.machine:
            self.directory.sweep.machine = self._machine
            self.directory.write_sweep()
        return self._machine

    def _explain(self, model: str | None = None) -> None:
        """Launch why the most ranks are not so many times one; of one model, show what that tells."""
        if self.explain is False:
            return
        try:
            runs = read_runs(self.directory.path)
            scaling = run_directory.read(self.directory.path, runs)
            explain.explain(
                self.directory, scaling, runs, self.how, self.console, self._launch, allowed_s=self._allowed_s
            )
        except RingscopeError as error:  # the sweep is whole all the same
            self.console.print(f"not explained: {error}", style="red", soft_wrap=True)
            return
        if model is not None and len({cell.model for cell in self.directory.sweep.cells}) > 1:
            _, found = explained.told(scaling, runs, self.directory.path)
            shown = [one for one in found if one.model == model and one.method]
            view.show_explained(shown, str(self.directory.path), self.console)

    def _allowed_s(self, spent_s: float) -> float | None:
        """Seconds for explaining in all, `spent_s` with it: a third of the sweep or, if that is more, the time that
        is left but for what is to be launched once; None: whatever it takes."""
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
