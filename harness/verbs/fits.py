"""`ringscope fits`: finds the largest batch that fits into memory."""

from __future__ import annotations

from typing import Any

import click

from profiles.ground.errors import RingscopeError
from profiles.runs.cell import MOST

from . import launch_options, options

_OF_LEARNING = ("until", "max_epochs", "epoch_samples")


@click.command(
    cls=options.Verb,
    epilog="""\b
Examples:
  ringscope fits --model resnet50    # on one GPU, or in the host's memory
  ringscope fits --model resnet50 --precision mixed_bfloat16 --multiple-of 8
  ringscope fits --model transformer --ranks 2 --strategy sharded
  ringscope fits --model cnn_cifar --memory-limit-mb 1500    # in 1.5 GB
  ringscope fits --resume            # go on with the newest search
  # predict from what was run, and launch nothing
  ringscope fits --of runs/X --memory-limit-mb 40000
""",
)
@options.of_one_cell(steps=3, warmup=2, without=_OF_LEARNING)
@click.option(
    "--up-to", type=click.IntRange(1, MOST), default=65536, show_default=True, help="The largest batch to try."
)
@click.option(
    "--within",
    type=options.Number(0, 50),
    default=2,
    show_default=True,
    help="Precision of the batch that is found, in percent; 0: one sample.",
)
@click.option(
    "--multiple-of",
    type=click.IntRange(1, MOST),
    default=1,
    show_default=True,
    help="Try only multiples of this number.",
)
@click.option("--of", type=options.Named(), help="Predict from a launch or a run directory.")
@click.option("--json", "as_json", type=options.Output(stdout=True), help="Write JSON; - is stdout.")
@launch_options.of_a_launch("horovodrun", "mpirun", "single")
@click.option("--resume", is_flag=True, help="Go on with the search in --out, or with the newest.")
@click.pass_context
def command(context: click.Context, /, **chosen: Any) -> None:
    """Find the largest batch per rank that fits into memory, by trying.

    Every try is a launch of its own. The search predicts from the memory of smaller batches, halves the remaining
    interval, and launches the answer twice. Then it says what would make a larger batch fit, and how many bytes each
    change saves.

    Memory means GPU memory; without a GPU it is a process's peak host memory (RSS), at most 80 % of the free memory
    unless --memory-limit-mb says otherwise. --per-rank-batch is the first batch to try.

    Exit code 0: found, or predicted; 1: nothing fits, or a launch failed otherwise; 2: bad input; 130: interrupted,
    continue with --resume.
    """
    from harness.jobs import fits
    from harness.jobs.options import Fits

    named = options.given(context)
    options.refuse_ignored(context, [*rules(chosen), *launch_options.rules(chosen)])
    if not (chosen["of"] or chosen["resume"] or chosen["model"]):
        raise RingscopeError(
            "no model to try; name one, as --model resnet50 (--model help lists them), or runs with --of"
        )
    if chosen["ranks"][0] == 1 and "launcher" not in named:
        chosen["launcher"] = "single"
    asked = Fits(
        launch=launch_options.launch(chosen, named),
        choices=options.choices(chosen),
        most=chosen["up_to"],
        within=chosen["within"] / 100,
        multiple_of=chosen["multiple_of"],
        resume=chosen["resume"],
        of=chosen["of"],
        as_json=chosen["as_json"],
    )
    context.exit(fits.main(asked))


def rules(chosen: dict[str, Any]) -> list[options.Rule]:
    """Refusals of options that would have no effect."""
    of_a_search = {"up_to", "within", "multiple_of"}
    return [
        (
            bool(chosen["of"]),
            (options.OF_A_CELL - {"memory_limit_mb"})
            | of_a_search
            | {"launcher", "launcher_args", "hosts", "hostfile", "time_limit", "stall_limit", "env", "container"}
            | {"out", "resume"},
            "has no effect with --of, which launches nothing; leave it out",
        ),
        (
            chosen["resume"],
            options.OF_A_CELL | of_a_search,
            "is fixed by the search that continues; leave it out with --resume",
        ),
    ]
