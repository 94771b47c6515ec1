"""`ringscope record`: a cell, or any command, under a profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


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
@click.option("-np", "--ranks", type=click.IntRange(1), default=1, show_default=True)
@click.option("--per-rank-batch", type=click.IntRange(1), help="Samples a rank and step.  [default: fits the machine]")
@click.option("--feed", help="As `bench --feeds`.  [default: fits the machine]")
@click.option("--input-dtype", help="float32, uint8.  [default: fits the machine]")
@click.option("--step", help="fit, compiled.  [default: fits the machine]")
@click.option("--precision", help="float32, mixed_bfloat16, mixed_float16.  [default: fits the machine]")
@click.option("--strategy", default="horovod", show_default=True, help="horovod, none, mirrored.")
@click.option("--compression", default="none", show_default=True, help="none, fp16, bf16.")
@click.option("--aggregate", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(3), default=12, show_default=True, help="Recorded steps of a cell.")
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True, help="Steps before them.")
@click.option("--data", default="synthetic", show_default=True, help="synthetic, or a directory of TFRecords.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--delay", type=click.FloatRange(0), default=30, show_default=True, help="Of a command: seconds before.")
@click.option("--duration", type=click.FloatRange(0.1), default=10, show_default=True, help="Of a command: seconds.")
@click.option(
    "--profiler", type=click.Choice(["nsys", "nvprof", "tensorflow"]), help="[default: the first that is here]"
)
@click.option("--keep", type=click.Choice(["recordings", "measures"]), default="recordings", show_default=True)
@click.option(
    "--launcher", type=click.Choice(["horovodrun", "mpirun", "single"]), default="horovodrun", show_default=True
)
@click.option("--launcher-args", default="", help="Passed to the launcher as they are.")
@click.option("--hosts", help="Such as a:4,b:4.  [default: this machine]")
@click.option("--hostfile", type=click.Path(path_type=Path))
@click.option("--time-limit", type=click.FloatRange(1), default=900, show_default=True, help="Seconds it may take.")
@click.option("--stall-limit", type=click.FloatRange(1), default=180, show_default=True, help="Seconds without a step.")
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: runs/<date>-<host>]")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Record a cell, or any command of yours, one recording a rank, and measure it.

    Under Nsight Systems, else nvprof, else TensorFlow's profiler. A cell records its steady steps. A command is
    recorded from --delay on for --duration, since it never says when its steps are steady, and goes on to its own end.

    Exit code 0: recorded; 1: the training failed; 2: bad input, or nothing was recorded.
    """
    from harness import record

    context.exit(record.main(options))
