"""`ringscope bench`: trains a grid of cells."""

from __future__ import annotations

from typing import Any

import click

from profiles.runs.records import MOST_LAUNCHES

from . import launch_options, options


@click.command(
    epilog="""\b
Examples:
  ringscope bench                              # what fits this machine
  ringscope bench --models all --launches 3    # more models, each three times
  ringscope bench --ranks 1,2 --models mlp --feeds prefetch,device,resident
  ringscope bench --ranks 1,2,4 --models resnet50 --per-rank-batch 64,256
  ringscope bench --ranks 8 --hosts a:4,b:4 --launcher mpirun
  ringscope bench --resume                     # continue the newest sweep
  # is this finding of a recorded launch right?
  ringscope bench --apply copies-pageable --of runs/X/CELL/0
"""
)
@options.of_a_grid
@click.option(
    "--launches",
    type=click.IntRange(1, MOST_LAUNCHES),
    help="Launches per cell, however long they take.  [default: 1, then up to 3 within --minutes]",
)
@click.option(
    "--minutes",
    type=options.Number(0),
    help="Minutes for repeated and explaining launches; each cell is launched once in any case.  [default: 12 with "
    "GPUs, 4 without]",
)
@launch_options.of_a_launch("horovodrun", "mpirun", "single", "slurm", "srun", "pbs", "lsf", "kubeflow")
@launch_options.of_a_job
@click.option("--resume", is_flag=True, help="Run only what is missing in --out, or in the newest sweep.")
@click.option("--retry-failed", is_flag=True, help="With --resume: launch failed cells again.")
@click.option(
    "--apply", "finding", metavar="FINDING", help="Rerun a recorded cell with this finding's change, and without it."
)
@click.option("--of", type=options.Named(), help="With --apply: the recorded launch, or its run directory.")
@click.option(
    "--explain/--no-explain",
    default=None,
    help="Record each model again to tell where N ranks lose time.  [default: in a third of the time, or --minutes]",
)
@click.option("--dry-run", is_flag=True, help="Print the cells and the commands, run nothing.")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Train a grid of cells under Horovod and report how it scales, and where the time goes that N ranks lose.

    Every option that takes a list multiplies the cells; `help` as its value lists the names. Options that you leave out
    get values that fit the machine: two models, on GPUs ResNet-50 and a transformer; `--models all` takes more. Each
    model is launched on one rank, then on more, and its curve is shown at once. A cell that fails becomes a row with
    its reason, and the sweep goes on.

    Exit code 0: all cells ok; 1: some are not; 2: bad input; 130: interrupted, continue with --resume.
    """
    from harness.jobs import bench
    from harness.jobs.options import Bench

    options.refuse_ignored(context, [*rules(chosen), *options.of_learning(chosen), *launch_options.rules(chosen)])
    given = options.given(context)
    own = ("launches", "minutes", "finding", "of", "resume", "retry_failed", "explain", "dry_run")
    asked = Bench(
        choices=options.choices(chosen),
        launch=launch_options.launch(chosen, given),
        more_cells=bool(given & options.OF_A_GRID),
        **{name: chosen[name] for name in own},
    )
    context.exit(bench.main(asked))


def rules(chosen: dict[str, Any]) -> list[options.Rule]:
    """Refusals of options that would have no effect."""
    finding, of, resume = chosen["finding"], chosen["of"], chosen["resume"]
    return [
        (not resume, ("retry_failed",), "works only with --resume; add that, or leave it out"),
        (chosen["launches"] is not None, ("minutes",), "has no effect with --launches; leave one of them out"),
        (not finding, ("of",), "works only with --apply FINDING; add that, or leave it out"),
        (not of, ("finding",), "needs --of LAUNCH, the launch whose report has the finding; add that"),
        (
            bool(finding),
            (options.OF_A_GRID - {"steps", "warmup"}) | {"resume", "explain", "minutes"},
            "has no effect with --apply, which reruns the cell of --of in a separate sweep; leave it out",
        ),
        (resume, ("dry_run",), "shows a new grid, not what --resume would run; leave one of them out"),
    ]
