"""What `record` does: a cell or any command under a profiler, its recordings measured (docs/guides/record.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from profiles.ground.errors import RingscopeError
from profiles.model.measures import Measures
from profiles.runs.records import read_run
from profiles.views.terminal import recording as terminal
from profiles.views.terminal import screen

from .. import launch
from ..launch import hosts, profilers, ssh
from ..machine import describe, nvml, sample
from ..processes import remote_files
from ..processes.lifeline import Lifeline
from . import bench, measuring, sweep
from .grid import Choices, grid
from .options import Record
from .run_directory import check_space, new_path, writing


def main(options: Record) -> int:
    """Record what the command line asks for; returns the exit code."""
    console = terminal.console()
    profiler = profilers.choose(options.profiler)
    if profiler.name == "nvprof" and not options.choices and options.launch.given & {"delay", "duration"}:
        raise RingscopeError("nvprof records some steps or the whole command; leave --delay and --duration out")
    how = replace(bench.how_to_launch(options.launch), profiler=profiler, recorded=options.recorded)
    if options.choices:
        sweep.check_training()
    sweep.check_launcher(how)
    folder, failed = (
        _cell(options, options.choices, how, console) if options.choices else _command(options, how, console)
    )
    if folder is None:
        return 1
    try:
        with console.status(f"exporting what {profiler.name} recorded"):
            found = measuring.collect(profiler, folder)
    except RingscopeError as error:
        if not failed:
            raise
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    with console.status("measuring"):
        measures = measure(found, keep=options.keep)
    if measures is not None:
        screen.show(measures, console, more=f"ringscope timeline {folder} ")
    console.print(f"recorded by {profiler.name}: {folder}", markup=False, highlight=False, soft_wrap=True)
    if options.choices and measures is not None and measures.findings:
        prove = f"prove a finding: ringscope bench --apply {measures.findings[0].code} --of {folder}"
        console.print(prove, markup=False, highlight=False, soft_wrap=True)
    return 1 if failed else 0


def _cell(options: Record, choices: Choices, how: sweep.How, console: Console) -> tuple[Path | None, bool]:
    """Train one cell with its timed steps recorded; its launch's folder, None without files, and if it failed."""
    cell = grid(choices, gpus=how.gpus)[0]
    sample.check(how.recorded, cell.ranks)
    bench.check_data([cell], how)
    directory = bench.new_directory(options.launch, [cell], 1, how)
    check_space(directory.path, _recorded(how, cell.ranks) * profilers.BYTES_A_RANK)
    with console.status("looking at this machine"):
        found = describe.describe()
    stopped = bench.run_tasks(directory, [(cell, 0)], how, found, console)
    folder = directory.launch_dir(cell, 0)
    if stopped or not (folder / "rank0.jsonl").exists():
        console.print(f"not recorded; the ranks' output is in {folder}", markup=False, soft_wrap=True)
        return None, True
    return folder, read_run(folder).record.status != "ok"


def _command(options: Record, how: sweep.How, console: Console) -> tuple[Path | None, bool]:
    """Run a user's command on every rank, its output passed through; the folder of its recordings, and if it failed."""
    profiler = how.profiler
    assert profiler is not None
    folder = ((options.launch.out or new_path()) / "command" / "0").resolve()
    if folder.exists():
        raise RingscopeError(f"{folder}: exists already; name another --out")
    sample.check(how.recorded, options.ranks)
    if not how.hosts:
        profilers.check_script(options.command)
    span = options.span
    if not options.launch.given & {"steps", "delay", "duration"} and profilers.python_words(options.command):
        span = replace(span, steps=profilers.STEPS)
    argv = profiler.of_command(options.command, folder, span)
    places = hosts.take(how.hosts, options.ranks)
    with writing(folder):
        folder.mkdir(parents=True)
    check_space(folder, _recorded(how, options.ranks) * profilers.BYTES_A_RANK)
    console.print(f"recording with {profiler.name}: {span}", highlight=False)
    words = ssh.words(how.launcher, how.launcher_args)
    with (
        remote_files.copied(folder, places, words) as lost,
        Lifeline(how.hosts, lines=options.ranks + 1) as lifeline,
    ):
        job = launch.command(
            argv,
            ranks=options.ranks,
            launcher=how.launcher,
            environ=os.environ,
            hosts=how.hosts,
            prefix=profiler.prefix(folder, span),
            lifeline=lifeline.address,
            launcher_args=how.launcher_args,
            variables=how.variables,
            container=how.container,
            recorded=how.recorded,
        )
        code = subprocess.run(launch.keeper(job.argv, lifeline=lifeline.address), env=job.env).returncode
    for host, why in lost.items():
        console.print(f"{host}: its recordings are not here: {why}", style="red", markup=False, soft_wrap=True)
    if code:
        console.print(f"the command ended with exit code {code}", highlight=False)
    return folder if not code or any(folder.glob("rank*")) else None, bool(code)


def _recorded(how: sweep.How, ranks: int) -> int:
    return sample.count(how.recorded, ranks, [host.slots for host in hosts.take(how.hosts, ranks)])


def measure(recordings: Sequence[Path], *, keep: str) -> Measures | None:
    """Measure the recordings into `measures.json` beside them; with `keep` "measures" they are then dropped.

    None where they hold no GPU work (a training on the CPU): they stay, and the reason is printed.
    """
    try:
        measures = measuring.write_measures(recordings)
    except RingscopeError as error:
        here = nvml.visible_gpus()
        why = error if here else "this host has no GPU, and GPUs are what is measured"
        print(f"recorded, not measured: {why}", file=sys.stderr)
        for line in measuring.of_the_host(recordings):
            print(line, file=sys.stderr)
        return None
    if keep == "measures":
        for path in recordings[0].parent.glob("rank*"):
            if path.name.endswith(profilers.SUFFIXES):
                path.unlink()
    return measures
