"""`ringscope doctor`: what is here and does it work."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from . import options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..doctor.checks import Check

NAME_WIDTH = 14  # of the longest check, `shared memory`
MARKS = {"ok": "green", "warning": "yellow", "failure": "red", "n/a": "dim"}


@click.command()
@click.option("-np", "--ranks", type=click.IntRange(1), help="Ranks to try. Default: every GPU, 2 without one.")
@click.option("--launcher", type=click.Choice(["horovodrun", "mpirun"]), default="horovodrun", show_default=True)
@click.option("--quick", is_flag=True, help="Look only: run no copy, no all-reduce and no training.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", metavar="[FILE]", help="Write JSON; - is stdout.")
@click.pass_context
def command(context: click.Context, /, ranks: int | None, launcher: str, quick: bool, json_to: str | None) -> None:
    """Check what is here, whether it works, and whether the ranks really train together.

    Every line is ok, a warning or a failure with what to do, or n/a if there is nothing to judge.

    Exit code 0: nothing fails; 1: something does; 2: bad input.

    \b
      ringscope doctor                     everything, about a minute
      ringscope doctor --quick             versions and devices only, some seconds
      ringscope doctor --launcher mpirun   the same under MPI
      ringscope doctor --json doctor.json  for a bug report
    """
    import json
    from pathlib import Path

    from rich.console import Console

    from profiles.files import write_whole

    from ..doctor import checks as doctor

    options.refuse_ignored(
        context, [(quick, ("ranks", "launcher"), "has no effect with --quick; leave one of them out")]
    )
    console = Console(stderr=json_to == "-", highlight=False)
    checks, machine = _examine(console, ranks=ranks, launcher=launcher, quick=quick, tell=json_to != "-")
    found = doctor.to_json(checks, machine)
    if json_to == "-":
        print(json.dumps(found, indent=1))
    else:
        counts = {status: sum(check.status == status for check in checks) for status in MARKS}
        console.print("; ".join(f"{number} {status}" for status, number in counts.items() if number))
        if json_to:
            write_whole(Path(json_to), json.dumps(found, indent=1) + "\n")
    sys.exit(1 if found["status"] == doctor.FAILURE else 0)


def _examine(
    console: Console, *, ranks: int | None, launcher: str, quick: bool, tell: bool
) -> tuple[list[Check], dict[str, Any]]:
    """All checks, each printed as soon as it is known: a trial that takes long hides nothing before it."""
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
    line.add_column()
    line.add_row(f"[{MARKS[check.status]}]{check.status}[/]", check.name, escape(check.text))
    if check.remedy:
        line.add_row("", "", f"[{MARKS[check.status]}]-> {escape(check.remedy)}[/]")
    return line
