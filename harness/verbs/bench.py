"""`ringscope bench`: the grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import options


@click.command(
    epilog="""\b
Examples:
  ringscope bench                                          what fits this machine
  ringscope bench --ranks 1,2 --models mlp --feeds prefetch,device,resident
  ringscope bench --ranks 1,2,4 --models resnet50 --per-rank-batch 64,256 --launches 5
  ringscope bench --ranks 8 --hosts a:4,b:4 --launcher mpirun
  ringscope bench --apply copies-pageable --of runs/X/CELL/0   prove a finding
  ringscope bench --resume                                 go on with the newest sweep
"""
)
@click.option("--ranks", help="Counts of GPUs (processes), such as 1,2,4.")
@click.option("--models", help="Such as resnet50,gru; `ringscope bench --models help` lists them.")
@click.option("--per-rank-batch", help="Samples a rank and step, such as 64,256; with --scaling strong: of all ranks.")
@click.option("--feeds", help="How a batch reaches the GPU: numpy, host, prefetch, device, staging, pinned, resident.")
@click.option("--input-dtype", help="float32, uint8.")
@click.option("--step", help="fit (reduced in the optimizer's apply), compiled (two halves compiled by XLA).")
@click.option("--precision", help="float32, mixed_bfloat16, mixed_float16.")
@click.option("--strategy", default="horovod", show_default=True, help="horovod, none (no all-reduce), mirrored.")
@click.option("--compression", default="none", show_default=True, help="Of gradients: none, fp16, bf16.")
@click.option("--aggregate", default="1", show_default=True, help="Local steps between all-reduces, such as 1,4.")
@click.option("--scaling", type=click.Choice(["weak", "strong"]), default="weak", show_default=True)
@click.option("--steps", type=click.IntRange(2), default=40, show_default=True, help="Timed steps a launch.")
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True, help="Untimed steps before them.")
@click.option("--launches", type=click.IntRange(1), help="Launches of every cell.  [default: 3]")
@click.option("--data", default="synthetic", show_default=True, help="synthetic, or a directory of TFRecords.")
@click.option("--seed", type=int, default=0, show_default=True)
@options.of_a_launch("horovodrun", "mpirun", "slurm", "single")
@click.option("--resume", is_flag=True, help="Run only what is missing in --out, or in the newest sweep.")
@click.option("--retry-failed", is_flag=True, help="With --resume: launch again what is not ok.")
@click.option("--apply", metavar="FINDING", help="Rerun a recorded cell with this finding's change, and without it.")
@click.option("--of", type=click.Path(path_type=Path), help="With --apply: the recorded launch, or its run directory.")
@click.option("--dry-run", is_flag=True, help="Print the cells and the commands, run nothing.")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Train a grid of cells under Horovod and report how it scales.

    Every option that takes a list makes the grid larger by that factor. What is not given fits the machine.
    A cell that fails is a row with its reason and not the end.

    Exit code 0: all cells ok; 1: some are not; 2: bad input; 130: interrupted, go on with --resume.
    """
    from harness.jobs import bench

    given = {name for name in chosen if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    context.exit(bench.main(chosen, given))
