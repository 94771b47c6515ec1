"""Options that several verbs take: the settings of one cell, and how its ranks are launched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_FITS = "  [default: fits the machine]"


def of_one_cell(command: F) -> F:
    """One value each, where `bench` takes lists (`bench.one_cell` reads them)."""
    return _together(
        command,
        click.option("-np", "--ranks", type=click.IntRange(1), default=1, show_default=True),
        click.option("--per-rank-batch", type=click.IntRange(1), help=f"Samples a rank and step.{_FITS}"),
        click.option("--feed", help=f"As `bench --feeds`.{_FITS}"),
        click.option("--input-dtype", help=f"float32, uint8.{_FITS}"),
        click.option("--step", help=f"fit, compiled.{_FITS}"),
        click.option("--precision", help=f"float32, mixed_bfloat16, mixed_float16.{_FITS}"),
        click.option("--strategy", default="horovod", show_default=True, help="horovod, none, mirrored."),
        click.option("--compression", default="none", show_default=True, help="Of gradients: none, fp16, bf16."),
        click.option(
            "--aggregate", type=click.IntRange(1), default=1, show_default=True, help="Local steps between all-reduces."
        ),
        click.option("--data", default="synthetic", show_default=True, help="synthetic, or a directory of TFRecords."),
        click.option("--seed", type=int, default=0, show_default=True),
    )


def of_a_launch(*launchers: str) -> Callable[[F], F]:
    """Where and how ranks are started, for how long at most, and where their files go."""
    passed_on = "; for slurm: to sbatch" if "slurm" in launchers else ""
    seconds: dict[str, Any] = {"type": click.FloatRange(1), "show_default": True}
    path = click.Path(path_type=Path)
    options = (
        click.option("--launcher", type=click.Choice(launchers), default=launchers[0], show_default=True),
        click.option("--launcher-args", default="", help=f"Passed to the launcher as they are{passed_on}."),
        click.option("--hosts", help="Such as a:4,b:4.  [default: this machine]"),
        click.option("--hostfile", type=path, help="The same from a file, a host a line: a slots=4."),
        click.option("--time-limit", **seconds, default=900, help="Seconds a launch may take."),
        click.option("--stall-limit", **seconds, default=180, help="Seconds without a step."),
        click.option("--out", type=path, help="The run directory.  [default: runs/<date>-<host>]"),
    )
    return lambda command: _together(command, *options)


def _together(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):  # as decorators: the last one is applied first
        command = option(command)
    return command
