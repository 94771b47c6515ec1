"""`ringscope train`: trains one cell once."""

from __future__ import annotations

from typing import Any

import click

from . import launch_options, options


@click.command(
    epilog="""\b
Examples:
  ringscope train --model mlp
  ringscope train --model cnn_cifar --ranks 2 --per-rank-batch 64
  ringscope train --model gru --ranks 2 --launcher mpirun
"""
)
@options.of_one_cell(model_required=True)
@launch_options.of_a_launch("horovodrun", "mpirun", "single")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Train one cell once and report its speed, as `bench` does for a single cell and launch.

    Exit code 0: trained; 1: not, with the reason; 2: bad input.
    """
    from harness.jobs import bench
    from harness.jobs.options import Bench

    options.refuse_ignored(context, [*options.of_learning(chosen), *launch_options.rules(chosen)])
    launch = launch_options.launch(chosen, options.given(context))
    context.exit(bench.main(Bench(options.choices(chosen), launch, launches=1, first_only=True)))
