"""Run `record`: run a cell or any command under a profiler and measure its recordings (docs/guides/record.md)."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from profiles.ground.errors import RingscopeError
from profiles.model.measures import Measures
from profiles.runs.records import COMMAND, read_run
from profiles.views.terminal import recording as terminal
from profiles.views.terminal import screen

from .. import launch
from ..launch import hosts, profilers, ssh, users_launcher
from ..launch.profilers import Profiler
from ..machine import describe, nvml, recorded_ranks
from ..processes import remote_files
from ..processes.lifeline import Lifeline
from . import bench, command_ranks, measuring, sweep
from .grid import Choices, grid
from .options import Record
from .progress import Watch
from .run_directory import check_space, new_path, writing

POLL_S = 0.5  # seconds between checks for complete recordings
STARTED_S = 60.0  # seconds after which ranks that have not started are reported
LOWEST = 19  # niceness: the lowest priority


def main(options: Record) -> int:
    """Record what the command line asks for; returns the exit code."""
    console = terminal.console()
    profiler = profilers.choose(options.profiler)
    if options.choices and profiler.name == "framework":
        profiler = Profiler("tensorflow")
    if profiler.name == "nvprof" and not options.choices and options.launch.given & {"delay", "duration"}:
        raise RingscopeError("nvprof records some steps or the whole command; leave --delay and --duration out")
    if options.nsys_args and profiler.name != "nsys":
        raise RingscopeError(
            f"--nsys-args is for nsys, and {profiler.name} records here; leave it out, or install nsys"
        )
    profiler, refused = profilers.allowed(replace(profiler, more=tuple(shlex.split(options.nsys_args))))
    if refused:
        console.print(refused, soft_wrap=True)
    how = replace(bench.how_to_launch(options.launch), profiler=profiler, recorded=options.recorded)
    if options.choices:
        sweep.check_training()
    theirs = users_launcher.launcher(options.command)
    if theirs is None:
        if not options.choices:
            how = sweep.of_command(how, options.ranks, options.launch.given)
        sweep.check_launcher(how)
    report = _Report(options, profiler, console)
    if options.choices:
        folder, failed = _cell(options, options.choices, how, console)
    else:
        folder, failed = _command(options, how, report, theirs)
    if folder is None:
        return 1
    if report.told < report.wanted:
        try:
            report.tell(folder)
        except RingscopeError as error:
            if not failed:
                raise
            report.say(str(error))
            return 1
    return 1 if failed or report.lacks else 0


@dataclass(slots=True)
class _Report:
    """Reports the recordings once: names their files and shows what they measure."""

    options: Record
    profiler: Profiler
    console: Console
    told: int = 0
    """The number of recordings that were reported."""
    wanted: int = 1
    """The number of recordings that there should be."""
    lacks: bool = False
    """True once a rank is known to have no recording."""

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def tell(self, folder: Path) -> None:
        """Collect the recordings and report them. Raises RingscopeError if there is none, or if one is incomplete."""
        with self.console.status(f"exporting what {self.profiler.spoken} recorded"):
            found = measuring.collect(self.profiler, folder)
        self._tell(folder, found)

    def tell_beside(self, folder: Path) -> None:
        """Report while the ranks still train, at the lowest priority and without a spinner in their output. An error
        does not end the training; the report is made again at the training's end."""
        os.nice(LOWEST)
        try:
            self._tell(folder, measuring.collect(self.profiler, folder))
        except Exception as error:  # an early report is worth less than days of training
            self.say(f"not measured yet: {error}; the training goes on, and ringscope tries again at its end")
        else:
            self.say("the training continues to its end")

    def _tell(self, folder: Path, found: Sequence[Path]) -> None:
        last = f" to {found[-1].name}" if len(found) > 1 else ""
        self.say(f"recorded by {self.profiler.spoken}: {found[0]}{last}")
        if len(found) < self.wanted:
            self.lacks = True
            self.say(f"{self.wanted - len(found)} of {self.wanted} ranks left no recording; see what they printed")
        if raw := sorted(folder.glob("rank*.qdstrm")):  # nsys leaves it only if it fails
            self.lacks = True
            self.say(
                f"{raw[0]}: nsys could not process all that it recorded (it printed why), so the recordings hold too "
                "little, or no GPU work; take --profiler framework"
            )
        measures = measure(found, keep=self.options.keep)
        self.told = len(found)
        if measures is None:
            return
        screen.show(measures, self.console, more=f"ringscope timeline {folder} ")
        if self.options.choices and measures.findings:
            self.say(f"prove a finding: ringscope bench --apply {measures.findings[0].code} --of {folder}")


def _cell(options: Record, choices: Choices, how: sweep.How, console: Console) -> tuple[Path | None, bool]:
    """Train one cell and record its timed steps. Returns the launch's folder (None if nothing was recorded) and True if
    the launch failed."""
    cell = grid(choices, gpus=how.gpus)[0]
    recorded_ranks.check(how.recorded, cell.ranks)
    bench.check_data([cell], how)
    check_space(options.launch.out or new_path(), command_ranks.recorded(how, cell.ranks) * profilers.BYTES_A_RANK)
    directory = bench.new_directory(options.launch, [cell], 1, how)
    with console.status("looking at this machine"):
        found = describe.describe()
    with Watch([(cell, 0)], console) as watch:
        stopped = bench.run_watched(directory, [(cell, 0)], how, found, watch)
    folder = directory.launch_dir(cell, 0)
    if stopped or not (folder / "rank0.jsonl").exists():
        console.print(f"not recorded; the ranks' output is in {folder}", soft_wrap=True)
        return None, True
    return folder, read_run(folder).record.status != "ok"


def _command(options: Record, how: sweep.How, report: _Report, theirs: str | None) -> tuple[Path | None, bool]:
    """Run the user's command on every rank and pass its output through. Returns the folder of its recordings (None if
    there are none) and True if the command failed.

    The measures are shown as soon as the recordings are complete. Then the command is ended (`--then stop`) or runs on
    to its end. theirs: name of the launcher that the command calls itself to start the ranks; None if ringscope starts
    them.
    """
    profiler = report.profiler
    if options.stops:
        _check_stop(profiler, how)
    folder = ((options.launch.out or new_path()) / COMMAND / "0").resolve()
    if folder.exists():
        raise RingscopeError(f"{folder}: exists already; name another --out{', one on each host' if theirs else ''}")
    span = options.span
    python = theirs or profilers.python_words(options.command)
    if not options.launch.given & {"steps", "delay", "duration"} and python:
        span = replace(span, steps=profilers.STEPS)
    start = partial(command_ranks.by_launcher, theirs) if theirs else command_ranks.by_ringscope
    ranks = start(options, how, profiler, folder, span)
    places = hosts.take(how.hosts, options.ranks)
    check_space(folder, command_ranks.recorded(how, options.ranks) * profilers.BYTES_A_RANK)
    with writing(folder):
        folder.mkdir(parents=True)
    report.say(f"recording with {profiler.spoken}: {span}; into {folder}/rank<k>{' or '.join(profiler.suffixes)}")
    if theirs:
        report.say(f"{theirs} starts the ranks")
    words = ssh.words(how.launcher, how.launcher_args)
    with (
        remote_files.copied(folder, places, words) as lost,
        Lifeline(how.hosts, lines=options.ranks + 1) as lifeline,
    ):
        job = ranks.job(lifeline.address)
        process = subprocess.Popen(launch.keeper(job.argv, lifeline=lifeline.address), env=job.env)
        whole = partial(ranks.are_whole, profiler, folder)
        code = _until_end(process, whole, ranks.missing, report.say)
        if code is None and options.stops:
            report.say("recorded; the training is ended, as --then stop asks")
            if theirs:  # the user's launcher ends its ranks itself, since some may be on other hosts
                process.terminate()
                process.wait()
            lifeline.close()
            process.wait()
            code = 0
        elif code is None:
            report.tell_beside(folder)
            code = process.wait()
    for host, why in lost.items():
        report.say(f"{host}: the recordings of this host could not be fetched: {why}")
    if code:
        report.say(f"the command ended with exit code {code}")
    elif missing := ranks.missing():
        if not any(folder.glob("rank*")):
            raise RingscopeError(missing)
        report.lacks = True
        report.say(missing)
    report.wanted = ranks.count() or 1
    return folder if not code or any(folder.glob("rank*")) else None, bool(code)


def _check_stop(profiler: Profiler, how: sweep.How) -> None:
    if profiler.name == "nvprof":
        raise RingscopeError("nvprof writes its recording when the command ends; leave --then stop out")
    if away := [host.name for host in how.hosts if not hosts.is_local(host.name)]:
        raise RingscopeError(
            f"--then stop ends only ranks of this host, and {away[0]} is another host; leave --then out"
        )


def _until_end(
    process: subprocess.Popen[bytes], whole: Callable[[], bool], missing: Callable[[], str], say: Callable[[str], None]
) -> int | None:
    """Wait until the command ends, and return its exit code; None if all recordings are complete before. Say once which
    ranks are missing, STARTED_S seconds after the start."""
    says_s = time.monotonic() + STARTED_S
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_S)
        if whole():
            return None
        if time.monotonic() >= says_s:
            says_s = math.inf
            if text := missing():
                say(f"after {STARTED_S:g} s: {text}")


def measure(recordings: Sequence[Path], *, keep: str) -> Measures | None:
    """Measure the recordings into `measures.json` beside them; `keep` "measures" then deletes the recordings.

    If they cannot be measured, for example after a training on the CPU, the reason is printed, the files stay, and None
    is returned.
    """
    try:
        measures = measuring.write_measures(recordings)
    except RingscopeError as error:
        here = nvml.visible_gpus()
        why = error if here else "this host has no GPU, and only GPUs are measured"
        print(f"recorded but not measured: {why}", file=sys.stderr)
        for line in measuring.of_the_host(recordings):
            print(line, file=sys.stderr)
        return None
    if keep == "measures":
        for path in recordings[0].parent.glob("rank*"):
            if path.name.endswith(profilers.SUFFIXES):
                path.unlink()
    return measures
