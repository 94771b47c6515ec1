"""The job of `fits`: find the largest batch of a cell by launches, each of which fits or runs out of memory
(docs/guides/memory.md).

The launches are kept in the run directory and decide on the next batch, so an interrupted search can continue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.ground.lazy import INTERRUPTED
from profiles.ground.memory import available_bytes
from profiles.runs.records import Cell, read_runs
from profiles.scaling import fits, run_directory, search
from profiles.scaling.search import Plan
from profiles.scaling.tries import tried
from profiles.verbs.options import STDOUT, write_json
from profiles.views.terminal import fits as view

from ..machine import describe as machine
from ..machine import nvml
from . import bench, sweep
from .grid import grid
from .options import Bench, Fits
from .progress import Watch, told_on
from .run_directory import RunDirectory

# The part of the host's free memory that ranks may use if no limit is given; the rest is for other programs.
SHARE_OF_HOST = 0.8
FIRST_PART = 8  # the search begins with the model's usual GPU batch divided by this
MIB = fits.MIB


def main(options: Fits) -> int:
    """Search for the largest batch, or predict it; returns the exit code."""
    console = told_on(options.as_json)
    if options.of is not None:
        return _predict(options, options.of, console)
    if options.resume:
        path = options.launch.out or run_directory.newest(searches=True)
        again = Bench(options.choices, replace(options.launch, out=path), resume=True)
        options = replace(options, launch=bench.remembered(again).launch)
    how = bench.how_to_launch(options.launch)
    sweep.check_training()
    sweep.check_launcher(how)
    directory = _directory(options, how)
    try:
        stopped = _search(directory, how, console)
        found = fits.read(directory.path)
        run_directory.write(directory.path, run_directory.read(directory.path))
        text = json.dumps(fits.to_json(found), indent=1) + "\n"
        write_whole(directory.path / "fits.json", text)
    finally:
        directory.release()  # a thread that is about to end may hold the directory a moment longer
    _report(text, options, lambda: view.show(found, str(directory.path), console))
    if stopped:
        console.print(f"\ninterrupted; continue with: ringscope fits --resume --out {directory.path}")
        return INTERRUPTED
    return 0 if found.done and found.largest else 1


def _predict(options: Fits, path: Path, console: Console) -> int:
    limits = options.choices.values.get("memory_limit_mb", (0,))
    found = fits.expect(path, limits[0] * MIB or None)
    text = json.dumps(fits.expected_json(found), indent=1) + "\n"
    _report(text, options, lambda: view.show_expected(found, console))
    return 0


def _report(text: str, options: Fits, show: Callable[[], None]) -> None:
    if options.as_json != STDOUT:
        show()
    if options.as_json is not None:
        write_json(text, options.as_json)


def _directory(options: Fits, how: sweep.How) -> RunDirectory:
    if options.resume and options.launch.out:
        fits.read(options.launch.out)  # raises if the directory holds no search
        return RunDirectory.resume(options.launch.out, [])
    cell = _first(options, how)
    bench.check_data([cell], how)
    plan = Plan(
        start=cell.per_rank_batch,
        most=options.most,
        within=options.within,
        multiple_of=options.multiple_of,
        capacity_bytes=_capacity(cell),
    )
    return bench.new_directory(options.launch, [cell], 1, how, search=asdict(plan))


def _first(options: Fits, how: sweep.How) -> Cell:
    """The cell with the batch to try first and its memory limit. Raises RingscopeError."""
    given = options.choices.values
    cell = grid(options.choices, gpus=how.gpus)[0]
    # other feeds keep many batches in host memory, which a training on the CPU itself needs
    if "feed" not in given and not how.gpus:
        cell = replace(cell, feed="resident")
    if "per_rank_batch" not in given:
        cell = replace(
            cell, per_rank_batch=max(1, cell.per_rank_batch // FIRST_PART if how.gpus else cell.per_rank_batch)
        )
    if options.most < options.multiple_of:
        raise RingscopeError(f"--up-to {options.most} is less than --multiple-of {options.multiple_of}; raise it")
    cell = replace(
        cell, per_rank_batch=min(options.most, -(-cell.per_rank_batch // options.multiple_of) * options.multiple_of)
    )
    if not how.gpus and not cell.memory_limit_mb:
        each = SHARE_OF_HOST * available_bytes() / cell.processes
        cell = replace(cell, memory_limit_mb=max(1, int(each) // MIB))
    return cell


def _capacity(cell: Cell) -> int | None:
    """The bytes of memory that a rank may use: its limit, else the least free memory of any GPU now; None if
    unknown."""
    if cell.memory_limit_mb:
        return cell.memory_limit_mb * MIB
    free = [gpu["memory_bytes"] - (gpu["memory_used_bytes"] or 0) for gpu in nvml.visible_gpus() if gpu["memory_bytes"]]
    return min(free, default=None)


def _search(directory: RunDirectory, how: sweep.How, console: Console) -> bool:
    """Launch until the answer is known or a launch fails for another reason than memory. Returns True if a signal
    stopped the search."""
    plan = fits.planned(directory.sweep)
    first = directory.sweep.cells[0]
    if not directory.sweep.machine:
        with console.status("looking at this machine"):
            directory.sweep.machine = machine.describe()
        directory.write_sweep()
    console.print(f"searching into {directory.path}", soft_wrap=True)
    with Watch([], console) as watch:
        again = [(one.cell, one.launch) for one in tried(read_runs(directory.path)).stopping]
        watch.expect(again)
        if bench.run_watched(directory, again, how, directory.sweep.machine, watch):
            return True
        while True:
            found = fits.of_runs(directory.sweep, read_runs(directory.path))
            if found.next_batch is None or found.stopped:
                return False
            task = _task(directory, replace(first, per_rank_batch=found.next_batch))
            watch.expect([task] * max(1, search.left(found.tries, plan)))
            if bench.run_watched(directory, [task], how, directory.sweep.machine, watch):
                return True


def _task(directory: RunDirectory, cell: Cell) -> sweep.Task:
    """The next launch of the cell. A new cell is added to the sweep's record."""
    if cell not in directory.sweep.cells:
        directory.sweep.cells.append(cell)
        directory.write_sweep()
    number = 0
    while directory.done(cell, number):
        number += 1
    return cell, number
