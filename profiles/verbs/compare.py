"""`ringscope compare`: what changed, by how much, and is it more than noise."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import RingscopeError


@click.command(
    epilog="""\b
Examples:
  ringscope compare runs/20261120-101500-node1 runs/20261121-090000-node1
  ringscope compare before.sqlite after.sqlite
  ringscope compare prefetch/ device/ --json -
  ringscope compare one/ two/ --predict 4,8       recordings of 1 and of 2 ranks
"""
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", type=click.Path(path_type=Path, allow_dash=True), help="Write it as JSON; - prints.")
@click.option("--predict", metavar="N,N", help="From recordings of 1 and of 2 ranks: a step on N.")
def command(before: Path, after: Path, as_json: Path | None, predict: str | None) -> None:
    """Compare two run directories, or two sets of recordings (files or directories of them).

    Which machine, model, batch and versions they are of comes first. Of recordings: every class and cause of a step's
    time with its difference, exact. Of sweeps: throughput cell by cell, with an effect size and a test over launches.
    """
    import json

    from rich.console import Console

    from .. import compare, subjects
    from ..records import write_whole
    from ..views import compare as view

    one, other = subjects.load([before]), subjects.load([after])
    if predict:
        _predict(one, other, predict)
        return
    found = compare.compare(one, other)
    if as_json is None:
        view.show(found, Console())
        return
    text = json.dumps(compare.to_json(found), indent=1) + "\n"
    if str(as_json) == "-":
        click.echo(text, nl=False)
    else:
        write_whole(as_json, text)


def _predict(one: object, two: object, wanted: str) -> None:
    from .. import numbers
    from ..predict import predict
    from ..subjects import Subject

    assert isinstance(one, Subject) and isinstance(two, Subject)
    try:
        ranks = [int(part) for part in wanted.split(",")]
    except ValueError:
        raise RingscopeError(f"--predict {wanted}: write it as --predict 4,8") from None
    if one.measures is None or two.measures is None:
        raise RingscopeError("prediction wants recordings; record the cell with ringscope record, on 1 rank and on 2")
    for found in predict(one.measures, two.measures, ranks):
        click.echo(
            f"{found.ranks} ranks: {numbers.duration(found.step_ns)} a step "
            f"({numbers.duration(found.low_ns)} to {numbers.duration(found.high_ns)}), efficiency "
            f"{numbers.share(found.efficiency)} ({numbers.share(found.efficiency_low)} to "
            f"{numbers.share(found.efficiency_high)})"
        )
