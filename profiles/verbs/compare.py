"""`ringscope compare`: what changed, by how much, and is it more than noise."""

from __future__ import annotations

from pathlib import Path

import click

from .. import terminals
from ..errors import RingscopeError
from . import predict
from .options import write_json


@click.command(
    epilog="""\b
Examples:
  ringscope compare runs/20261120-101500-node1 runs/20261121-090000-node1
  ringscope compare before.sqlite after.sqlite
  ringscope compare prefetch/ device/ --json -
"""
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", type=click.Path(path_type=Path, allow_dash=True), help="Write JSON; - is stdout.")
@click.option("--predict", "ranks", metavar="N,N", help="As ringscope predict --ranks.")
@click.option("--measured", "larger", type=click.Path(path_type=Path), help="As ringscope predict --measured.")
def command(before: Path, after: Path, as_json: Path | None, ranks: str | None, larger: Path | None) -> None:
    """Compare two run directories, or two sets of recordings (files or directories of them).

    First come the machine, model, batch and versions of both. Of recordings it shows the time per step of every class
    and cause, with the exact difference. Of sweeps it shows the throughput of every cell, with an effect size and a
    test over launches.
    """
    if ranks is not None:
        predict.show([before, after], "--predict", ranks, larger, as_json)
        return
    if larger is not None:
        raise RingscopeError("--measured is compared with a prediction; give --predict too")
    import json

    from ..judging import compare, subject
    from ..views import compare as view

    found = compare.compare(subject.load([before]), subject.load([after]))
    if as_json is None:
        view.show(found, terminals.console())
    else:
        write_json(json.dumps(compare.to_json(found), indent=1) + "\n", as_json)
