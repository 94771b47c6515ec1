"""What `record` does: launch under the profiler, collect the recordings, measure and show them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from profiles.errors import RingscopeError
from profiles.views import terminal

from . import bench, launch, machine, recorder, sweep
from .cell import grid
from .lifeline import Lifeline
from .runs import check_space, new_path

# Options of `bench` that a single recorded cell does not offer.
_ONCE = {"scaling": "weak", "launches": 1, "resume": False, "retry_failed": False, "dry_run": False}


def main(options: dict[str, Any]) -> int:
    """Record what the command line asks for; returns the exit code."""
    argv = list(options.pop("command_line"))
    if bool(argv) == bool(options["model"]):
        raise RingscopeError(
            "give a cell (--model resnet50 ...) or a command of yours (-- python my_train.py), not both"
        )
    console = terminal.console()
    chosen = recorder.choose(options["profiler"])
    how = replace(bench.how_to_launch(options), recorder=chosen)
    sweep.check_launcher(how)
    folder = _command(argv, options, how, console) if argv else _cell(options, how, console)
    if folder is None:
        return 1
    with console.status(f"exporting what {chosen.name} recorded"):
        found = recorder.collect(chosen, folder)
    with console.status("measuring"):
        measures = recorder.measure(found, keep=options["keep"])
    if measures is not None:
        terminal.show(measures, console)
    console.print(f"recorded by {chosen.name}: {folder}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _cell(options: dict[str, Any], how: sweep.How, console: Console) -> Path | None:
    """Train one cell with its timed steps recorded; its launch's folder, None where it failed."""
    plural = {
        "models": options["model"],
        "feeds": options["feed"],
        "ranks": str(options["ranks"]),
        "aggregate": str(options["aggregate"]),
        "per_rank_batch": str(options["per_rank_batch"]) if options["per_rank_batch"] else None,
    }
    asked = {**options, **plural, **_ONCE}
    (cell,) = grid(bench.choices(asked), gpus=len(bench.visible_gpus()))[:1]
    directory = bench.open_directory(asked, set(), [cell], 1, how)
    check_space(directory.path, cell.ranks * recorder.BYTES_A_RANK)
    with console.status("looking at this machine"):
        found = machine.describe()
    stopped = bench.run_tasks(directory, [(cell, 0)], how, found, console)
    folder = directory.launch_dir(cell, 0)
    if stopped or not (folder / "rank0.jsonl").exists():
        console.print(f"not recorded; the ranks' words are in {folder}", markup=False, soft_wrap=True)
        return None
    return folder


def _command(argv: list[str], options: dict[str, Any], how: sweep.How, console: Console) -> Path | None:
    """Run a user's command on every rank, its output passed through; the folder of its recordings."""
    chosen = how.recorder
    assert chosen is not None
    folder = ((options["out"] or new_path()) / "command" / "0").resolve()
    if folder.exists():
        raise RingscopeError(f"{folder}: something is there already; name another --out")
    folder.mkdir(parents=True)
    check_space(folder, options["ranks"] * recorder.BYTES_A_RANK)
    span = recorder.Span(options["delay"], options["duration"])
    console.print(f"recording with {chosen.name} from {span.delay_s:g} s on for {span.duration_s:g} s", highlight=False)
    with Lifeline(how.hosts) as lifeline:
        job = launch.command(
            chosen.of_command(argv, folder, span),
            ranks=options["ranks"],
            launcher=how.launcher,
            environ=os.environ,
            hosts=how.hosts,
            prefix=chosen.prefix(folder, span),
            lifeline=lifeline.address,
            launcher_args=how.launcher_args,
        )
        code = subprocess.run(launch.keeper(job.argv, lifeline=lifeline.address), env=job.env).returncode
    if code:
        console.print(f"the command ended with exit code {code}", highlight=False)
    return folder if not code or any(folder.glob("rank*")) else None
