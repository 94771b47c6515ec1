"""Show how a sweep goes: on a terminal a bar with the time left, elsewhere one line per launch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from profiles.ground import numbers, terminals
from profiles.runs.cell import in_words
from profiles.runs.records import Cell, RunRecord
from profiles.views.terminal import recording as terminal

from ..processes.supervise import Progress as RankProgress

if TYPE_CHECKING:
    from typing_extensions import Self


def told_on(as_json: Path | None) -> Console:
    """The console for a job's progress: stderr if its JSON goes to stdout."""
    return terminals.console(stderr=True) if str(as_json) == "-" else terminal.console()


class _Shown:
    """Shows a progress bar while it is used as a context manager. `_done` counts the job's finished parts."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = 0
        self._bar = _bar(console)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Watch(_Shown):
    """Shows the progress of a sweep; use it as a context manager."""

    def __init__(self, tasks: Sequence[tuple[Cell, int]], console: Console) -> None:
        super().__init__(console)
        self._took: dict[str, list[float]] = {}
        self._task = self._bar.add_task("launches", left="", now="")
        self.expect(tasks)

    def expect(self, tasks: Sequence[tuple[Cell, int]]) -> None:
        """Replace the remaining tasks; some jobs learn their number only while they run."""
        self._left = [cell.id for cell, _ in tasks]
        self._count = self._done + len(tasks)
        self._bar.update(self._task, total=self._count)

    def begun(self, cell: Cell) -> None:
        self._now = in_words(cell)
        self._bar.update(self._task, now=self._now)

    def moved(self, progress: RankProgress) -> None:
        self._bar.update(self._task, now=f"{self._now}: {progress}")

    def ended(self, record: RunRecord, seconds: float) -> None:
        self._left.remove(record.cell.id)
        self._took.setdefault(record.cell.id, []).append(seconds)
        self._done += 1
        left = f"{numbers.minutes(self.left_s())} left"
        self._bar.update(self._task, completed=self._done, left=left, now="")
        if record.status != "ok":
            said = f"{in_words(record.cell)} #{record.launch}: {record.status}: {record.reason}"
            self._console.print(said, style="red")
        elif not self._console.is_terminal:
            done = f"{self._done}/{self._count} {in_words(record.cell)} #{record.launch}"
            self._console.print(f"{done}: ok in {numbers.minutes(seconds)}, {left}", soft_wrap=True)

    def left_s(self) -> float:
        """Seconds left once a launch has ended: for each launch the cell's own median, or the median of all cells."""
        medians = {cell: statistics.median(took) for cell, took in self._took.items()}
        usual = statistics.median(medians.values())
        return sum(medians.get(cell, usual) for cell in self._left)


class Steps(_Shown):
    """Shows the progress of a job whose steps take about known times; use it as a context manager."""

    def __init__(self, planned_s: Sequence[float], console: Console) -> None:
        super().__init__(console)
        self._planned, self._took = list(planned_s), 0.0
        self._task = self._bar.add_task("steps", total=len(self._planned), left=self._left(), now="")

    def left_s(self) -> float:
        """Seconds left: the planned time of the remaining steps, times how much longer than planned the steps so far
        took."""
        before = sum(self._planned[: self._done])
        return sum(self._planned[self._done :]) * (self._took / before if before else 1.0)

    def _left(self) -> str:
        return f"{numbers.minutes(self.left_s())} left"

    def begun(self, words: str) -> None:
        self._words = words
        self._bar.update(self._task, now=words)

    def ended(self, seconds: float) -> None:
        self._took += seconds
        self._done += 1
        self._bar.update(self._task, completed=self._done, left=self._left(), now="")
        if not self._console.is_terminal:
            said = f"{self._words}: {numbers.minutes(seconds)}, {self._left()}"
            self._console.print(f"{self._done}/{len(self._planned)} {said}", soft_wrap=True)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.fields[now]}"),
        console=console,
        refresh_per_second=2,  # few updates, because drawing takes CPU time from ranks on the same cores
        disable=not console.is_terminal,
    )


def about(seconds: float) -> str:
    """An estimated duration, such as `40 s`, `3 min`."""
    return f"{max(10, 10 * round(seconds / 10))} s" if seconds < 85 else f"{round(seconds / 60)} min"
