"""`ringscope train`: one cell, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command(
    epilog="""\b
Examples:
  ringscope train --model mlp
  ringscope train --model cnn_cifar --ranks 2 --per-rank-batch 64 --feed device
  ringscope train --model gru --ranks 2 --launcher mpirun
"""
)
@click.option("--model", required=True, help="Such as resnet50; `ringscope bench --models help` lists them.")
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True)
@click.option("--per-rank-batch", type=click.IntRange(1), help="Samples a rank and step.  [default: fits the machine]")
@click.option("--feed", default="prefetch", show_default=True, help="As `bench --feeds`.")
@click.option("--input-dtype", default="float32", show_default=True, help="float32, uint8.")
@click.option("--step", default="fit", show_default=True, help="fit, compiled.")
@click.option("--precision", default="float32", show_default=True, help="float32, mixed_bfloat16, mixed_float16.")
@click.option("--strategy", default="horovod", show_default=True, help="horovod, none, mirrored.")
@click.option("--compression", default="none", show_default=True, help="none, fp16, bf16.")
@click.option("--aggregate", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(2), default=40, show_default=True)
@click.option("--warmup", type=click.IntRange(1), default=10, show_default=True)
@click.option("--data", default="synthetic", show_default=True, help="synthetic, or a directory of TFRecords.")
@click.option("--seed", type=int, default=0, show_default=True)
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
    """Train one cell once and say how fast: `bench` of a single cell and launch.

    Exit code 0: trained; 1: not, with the reason; 2: bad input.
    """
    from harness import bench

    choices = {
        "models": options.pop("model"),
        "feeds": options.pop("feed"),
        "ranks": str(options.pop("ranks")),
        "aggregate": str(options.pop("aggregate")),
        "per_rank_batch": str(options.pop("per_rank_batch") or "") or None,
    }
    once = {"scaling": "weak", "launches": 1, "resume": False, "retry_failed": False, "dry_run": False}
    context.exit(bench.main({**options, **choices, **once}, set(choices)))
