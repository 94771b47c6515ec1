"""`ringscope compare`: what changed, by how much, and is it more than noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..ground import terminals
from . import predict
from .options import Output, Verb, refuse_ignored, write_json


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line; None if an option was not given."""

    before: Path
    after: Path
    as_json: Path | None
    ranks: str | None
    larger: Path | None


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  ringscope compare runs/20261120-101500-node1 runs/20261121-090000-node1
  ringscope compare before.sqlite after.sqlite
  ringscope compare prefetch/ device/ --json -
""",
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", type=Output(stdout=True), help="Write JSON; - is stdout.")
@click.option(
    "--predict",
    "ranks",
    metavar="N,N",
    help="Also predict for these numbers of GPUs, as ringscope predict --ranks does.",
)
@click.option(
    "--measured",
    "larger",
    type=click.Path(path_type=Path),
    help="Compare the prediction with this run, as ringscope predict --measured does.",
)
@click.pass_context
def command(context: click.Context, /, **chosen: object) -> None:
    """Compare two run directories, or two sets of recordings (files or directories of them).

    First come the machine, model, batch and versions of both. For recordings it shows the time per step of every kind
    of GPU work and every cause of idle time, with the exact difference, and which kernels, operators and layers
    changed. For run directories it shows the throughput of every cell, with an effect size and a test over launches.
    """
    options = Options(**chosen)  # type: ignore[arg-type]
    refuse_ignored(context, [(options.ranks is None, ("larger",), "is compared with a prediction; give --predict too")])
    if options.ranks is not None:
        predict.show([options.before, options.after], "--predict", options.ranks, options.larger, options.as_json)
    else:
        _compare(options)


def _compare(options: Options) -> None:
    import json

    from ..comparing import compare
    from ..measuring import subject
    from ..views.terminal import compare as view

    found = compare.compare(subject.load([options.before]), subject.load([options.after]))
    if options.as_json is None:
        view.show(found, terminals.console())
    else:
        write_json(json.dumps(compare.to_json(found), indent=1) + "\n", options.as_json)
