"""A progress bar with the time left, for work that takes longer than PATIENCE_S seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from ...ground import terminals

PATIENCE_S: Final = 2.0

Progress = Callable[[float, float, Path], None]


@contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """The progress bar of one activity, as a function to call with (done, total, path of the file at work); see
    `stages`."""
    with stages(doing) as report:
        yield partial(report, doing)


@contextmanager
def stages(at_first: str = "looking for recordings") -> Iterator[Callable[[str, float, float, Path], None]]:
    """The progress bar of several activities, as a function to call with (activity, done, total, path of the file at
    work). The bar is on stderr, after PATIENCE_S, if stderr is a terminal. `at_first`: what it says before the first
    call."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = terminals.console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(at_first, total=None)
    later = threading.Timer(PATIENCE_S, bar.start)
    later.daemon = True
    later.start()
    doing_now = ""

    def report(doing: str, done: float, total: float, path: Path) -> None:
        nonlocal doing_now
        if doing != doing_now:  # the time left of a new activity is estimated from that activity's start
            doing_now = doing
            bar.reset(task)
        bar.update(task, completed=done, total=total, description=f"{doing} {path.name}")

    try:
        yield report
    finally:
        later.cancel()
        bar.stop()
