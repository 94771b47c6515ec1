"""`ringscope doctor`: checks what is here and whether it works."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profiles.ground.numbers import counted
from profiles.verbs.options import STDOUT

from . import options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..doctor.checks import Check
    from ..doctor.script import Trial

NAME_WIDTH = 14  # characters of the longest check's name, `shared memory`
MARKS = {"ok": "green", "warning": "yellow", "failure": "red", "n/a": "dim"}


@click.command(cls=options.Verb)
@click.argument("command_line", metavar="[-- COMMAND ...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-np", "--ranks", type=click.IntRange(1), help="Ranks to try. [default: every GPU; 2 without one, or for a command]"
)
@click.option(
    "--launcher",
    type=click.Choice(["horovodrun", "mpirun"]),
    default="horovodrun",
    show_default=True,
    help="The program that starts the ranks.",
)
@click.option("--quick", is_flag=True, help="Look only: run no copy, no all-reduce and no training.")
@click.option(
    "--steps",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    help="For a command: stop it after this many steps.",
)
@click.option(
    "--time-limit",
    type=options.Number(1),
    default=300,
    show_default=True,
    help="For a command: time limit in seconds, startup included.",
)
@click.option("--in-place", is_flag=True, help="Run a command here, not in a copy of the working directory.")
@click.option(
    "--json",
    "json_to",
    type=options.Output(stdout=True),
    is_flag=False,
    flag_value=str(STDOUT),
    metavar="[FILE]",
    help="Write JSON; - is stdout.",
)
@click.pass_context
def command(
    context: click.Context,
    /,
    command_line: tuple[str, ...],
    ranks: int | None,
    launcher: str,
    quick: bool,
    steps: int,
    time_limit: float,
    in_place: bool,
    json_to: Path | None,
) -> None:
    """Check what is here, whether it works, and whether the ranks really train together; or whether a script's do.

    Every line is ok, a warning or a failure with what to do, or n/a if there is nothing to judge.

    A command runs on 2 ranks (as one process if that trains on several devices, or starts its ranks itself), or on the
    ranks that its own launcher starts (torchrun, accelerate, mpirun ...), for some steps of Keras's or PyTorch's
    optimizers, and is then ended in the middle: are the weights equal on all ranks after each step, and which samples
    did each rank train on? The script is not changed. It runs in a copy of the working directory, which is deleted
    afterwards; files that it writes by absolute paths are really written.

    Exit code 0: nothing fails; 1: something does; 2: bad input.

    \b
      ringscope doctor                       # everything, half a minute
      ringscope doctor --quick               # only versions and devices
      ringscope doctor --launcher mpirun     # the same under MPI
      ringscope doctor --json doctor.json    # for a bug report
      ringscope doctor -- python train.py    # do its ranks train together?
      ringscope doctor -np 4 --steps 20 -- python train.py --epochs 3
      ringscope doctor -- torchrun --nproc_per_node 2 train.py    # PyTorch
    """
    import json

    from rich.console import Console

    from ..doctor import checks as doctor

    of_machine, of_command = ("quick",), ("steps", "time_limit", "in_place")
    options.refuse_ignored(
        context,
        [
            (quick and not command_line, ("ranks", "launcher"), "has no effect with --quick; leave one of them out"),
            (bool(command_line), of_machine, "looks at the machine, not at a command; leave one of them out"),
            (not command_line, of_command, "is for a command; write it as ringscope doctor -- python train.py"),
        ],
    )
    console = Console(stderr=json_to == STDOUT, highlight=False)
    tell = json_to != STDOUT
    machine: dict[str, Any] | None = None
    if command_line:
        from ..doctor.script import Trial
        from ..launch import users_launcher

        theirs = users_launcher.launcher(command_line)
        says = f"is decided by {theirs}, which starts the ranks; leave it out, or give it to {theirs}"
        options.refuse_ignored(context, [(theirs is not None, ("ranks", "launcher"), says)])
        trial = Trial(
            command_line,
            ranks or 2,
            theirs or ("single" if ranks == 1 else launcher),
            own=theirs is not None,
            steps=steps,
            limit_s=time_limit,
            in_place=in_place,
        )
        checks = _try(console, trial, tell=tell, alone_too=ranks is None and theirs is None)
    else:
        checks, machine = _examine(console, ranks=ranks, launcher=launcher, quick=quick, tell=tell)
    found = doctor.to_json(checks, machine)
    if json_to is not None:
        options.write_json(json.dumps(found, indent=1) + "\n", json_to)
    if tell:
        counts = {status: sum(check.status == status for check in checks) for status in MARKS}
        several = {"warning": "warnings", "failure": "failures"}
        named = [(number, several.get(status, status) if number > 1 else status) for status, number in counts.items()]
        console.print(", ".join(f"{number} {name}" for number, name in named if number))
    sys.exit(1 if found["status"] == doctor.FAILURE else 0)


def _try(console: Console, trial: Trial, *, tell: bool, alone_too: bool = False) -> list[Check]:
    """Run the command, show the steps of its slowest rank meanwhile, and judge the result. alone_too: nobody gave
    the number of ranks, so the command runs once more with one rank if each trains on several devices."""
    import os
    from dataclasses import replace

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from ..doctor import devices, script, together
    from ..machine import nvml

    environ = dict(os.environ)
    if not trial.own and trial.ranks > len(nvml.visible_gpus()):
        environ["CUDA_VISIBLE_DEVICES"] = ""
    where = "here" if trial.in_place else "in a copy of this folder, which is deleted afterwards"
    if tell:
        device = "the CPU" if environ.get("CUDA_VISIBLE_DEVICES") == "" else "a GPU each"
        who = f"{trial.launcher} starts the ranks" if trial.own else f"{counted(trial.ranks, 'rank')} on {device}"
        console.print(f"{who}, {where}", markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("steps", total=trial.steps)
        found = script.observe(
            trial,
            lambda ranks: progress.update(task, completed=min(rank.last_step for rank in ranks)),
            environ,
        )
    if alone_too and devices.are_one_process(found.ranks):
        if tell:
            console.print(
                "each process trains on several devices: the command runs once more, with one process", markup=False
            )
        return _try(console, replace(trial, ranks=1, launcher="single"), tell=tell)
    if found.by_script and not trial.own:
        if tell:
            console.print("the script starts its ranks itself: it runs once more, as one process", markup=False)
        return _try(console, replace(trial, ranks=1, launcher="single"), tell=tell)
    checks = together.judge(found)
    if tell:
        for check in checks:
            console.print(_line(check))
    return checks


def _examine(
    console: Console, *, ranks: int | None, launcher: str, quick: bool, tell: bool
) -> tuple[list[Check], dict[str, Any]]:
    """Run all checks and print each as soon as it is known, so that a long trial does not delay the lines before it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from ..doctor import checks as doctor
    from ..doctor import trials
    from ..machine import describe

    checks: list[Check] = []

    def known(more: Iterable[Check]) -> None:
        for check in more:
            checks.append(check)
            if tell:
                console.print(_line(check))

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        looking_s = 6
        if tell and not console.is_terminal:  # which shows no bar
            console.print("looking at versions and devices")
        task = progress.add_task("versions and devices", total=looking_s)
        found = describe.describe()
        known(doctor.judge(found))
        planned = [] if quick else trials.plan(found, ranks=ranks, launcher=launcher)
        progress.update(task, advance=looking_s, total=looking_s + sum(trial.expected_s for trial in planned))
        for trial in planned:
            progress.update(task, description=trial.name)
            known(trial.run())
            progress.advance(task, trial.expected_s)
    return checks, found


def _line(check: Check) -> Table:
    from rich.markup import escape
    from rich.table import Table

    line = Table.grid(padding=(0, 2))
    line.add_column(width=max(map(len, MARKS)))
    line.add_column(width=NAME_WIDTH)
    line.add_column(overflow="fold")  # a word that is longer than the line, such as a call to paste, stays whole
    line.add_row(f"[{MARKS[check.status]}]{check.status}[/]", check.name, escape(check.text))
    if check.remedy:
        line.add_row("", "", f"[{MARKS[check.status]}]-> {escape(check.remedy)}[/]")
    return line
