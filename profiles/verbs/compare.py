"""`ringscope compare`: what changed, by how much, and is it more than noise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import RingscopeError

if TYPE_CHECKING:
    from ..judging.subject import Subject


@click.command(
    epilog="""\b
Examples:
  ringscope compare runs/20261120-101500-node1 runs/20261121-090000-node1
  ringscope compare before.sqlite after.sqlite
  ringscope compare prefetch/ device/ --json -
  ringscope compare one/ two/ --predict 4,8       recordings of 1 and of 2 ranks
  ringscope compare one/ two/ --predict 8 --measured four/
"""
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", type=click.Path(path_type=Path, allow_dash=True), help="Write it as JSON; - prints.")
@click.option("--predict", metavar="N,N", help="From recordings of 1 and of 2 ranks: a step on N.")
@click.option("--measured", "larger", type=click.Path(path_type=Path), help="Hold the prediction against this run.")
def command(before: Path, after: Path, as_json: Path | None, predict: str | None, larger: Path | None) -> None:
    """Compare two run directories, or two sets of recordings (files or directories of them).

    Which machine, model, batch and versions they are of comes first. Of recordings: every class and cause of a step's
    time with its difference, exact. Of sweeps: throughput cell by cell, with an effect size and a test over launches.
    """
    import json

    from rich.console import Console

    from ..files import write_whole
    from ..judging import compare, subject
    from ..views import compare as view

    one, other = subject.load([before]), subject.load([after])
    if larger and not predict:
        raise RingscopeError("--measured is what --predict is held against: give both")
    document: Mapping[str, Any]
    if predict:
        words, document = _predict(one, other, predict, larger)
        if as_json is None:
            click.echo(words)
            return
    else:
        found = compare.compare(one, other)
        if as_json is None:
            view.show(found, Console())
            return
        document = compare.to_json(found)
    text = json.dumps(document, indent=1) + "\n"
    if str(as_json) == "-":
        click.echo(text, nl=False)
    else:
        write_whole(as_json, text)


def _predict(one: Subject, two: Subject, wanted: str, larger: Path | None) -> tuple[str, dict[str, Any]]:
    """The predictions in words and as JSON, held against the step of a larger run where one is given."""
    from dataclasses import asdict

    from .. import numbers
    from ..judging import predict, subject

    try:
        ranks = [int(part) for part in wanted.split(",")]
    except ValueError:
        raise RingscopeError(f"--predict {wanted}: write it as --predict 4,8") from None
    if one.measures is None or two.measures is None:
        raise RingscopeError("prediction wants recordings; record the cell with ringscope record, on 1 rank and on 2")
    predict.check_alike(one, two)
    against = None
    if larger:
        run = subject.load([larger])
        predict.check_alike(two, run)
        if run.measures is None:
            raise RingscopeError(f"{larger}: no recordings there to hold the prediction against")
        against = predict.measured(run.measures)
        ranks = sorted({*ranks, against.ranks})
    found = predict.predict(one.measures, two.measures, ranks)
    lines = []
    for each in found:
        line = (
            f"{each.ranks} ranks: {numbers.duration(each.step_ns)} a step "
            f"({numbers.duration(each.low_ns)} to {numbers.duration(each.high_ns)}), efficiency "
            f"{numbers.share(each.efficiency)} ({numbers.share(each.efficiency_low)} to "
            f"{numbers.share(each.efficiency_high)})"
        )
        if against and against.ranks == each.ranks:
            inside = each.low_ns <= against.step_ns <= each.high_ns
            line += f"; measured {numbers.duration(against.step_ns)}, {'inside' if inside else 'outside'} the interval"
        lines.append(line)
    document = {
        "schema": "ringscope.prediction/1",
        "predictions": [asdict(each) for each in found],
        "measured": asdict(against) if against else None,
    }
    return "\n".join(lines), document
