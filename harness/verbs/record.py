"""`ringscope record`: a cell, or any command, under a profiler."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command(
    epilog="""\b
Examples:
  ringscope record --model mlp                                    a cell of ringscope's own
  ringscope record --model resnet50 -np 4 --feed pinned --step compiled
  ringscope record -np 4 -- python my_train.py --epochs 3         any command of yours
  ringscope record -np 2 --delay 60 --duration 5 -- python my_train.py
"""
)
@click.argument("command_line", metavar="[-- COMMAND ...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", help="A cell of this model; else give a command after --.")
@click.option("--steps", type=click.IntRange(3), default=12, show_default=True, help="Recorded steps of a cell.")
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True, help="Steps before them.")
@click.option("--delay", type=click.FloatRange(0), default=30, show_default=True, help="Of a command: seconds before.")
@click.option("--duration", type=click.FloatRange(0.1), default=10, show_default=True, help="Of a command: seconds.")
@click.option(
    "--profiler", type=click.Choice(["nsys", "nvprof", "tensorflow"]), help="[default: the first that is here]"
)
@click.option("--keep", type=click.Choice(["recordings", "measures"]), default="recordings", show_default=True)
@options.of_one_cell
@options.of_a_launch("horovodrun", "mpirun", "single")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Record a cell, or any command of yours, one recording a rank, and measure it.

    Under Nsight Systems, else nvprof, else TensorFlow's profiler. A cell records its steady steps. A command is
    recorded from --delay on for --duration, since it never says when its steps are steady, and goes on to its own end.

    Exit code 0: recorded; 1: the training failed; 2: bad input, or nothing was recorded.
    """
    from harness.jobs import record

    context.exit(record.main(chosen))
