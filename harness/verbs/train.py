"""`ringscope train`: one cell, once."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command(
    epilog="""\b
Examples:
  ringscope train --model mlp
  ringscope train --model cnn_cifar --ranks 2 --per-rank-batch 64 --feed device
  ringscope train --model gru --ranks 2 --launcher mpirun
"""
)
@click.option("--model", required=True, help="Such as resnet50; `ringscope bench --models help` lists them.")
@click.option("--steps", type=click.IntRange(2), default=40, show_default=True, help="Timed steps.")
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True, help="Untimed steps before them.")
@options.of_one_cell
@options.of_a_launch("horovodrun", "mpirun", "single")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Train one cell once and say how fast: `bench` of a single cell and launch.

    Exit code 0: trained; 1: not, with the reason; 2: bad input.
    """
    from harness.jobs import bench

    context.exit(bench.main(bench.one_cell(chosen)))
