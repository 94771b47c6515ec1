"""`ringscope predict`: how long a step would take on more ranks."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import RingscopeError
from .options import write_json

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="""\b
Examples:
  ringscope predict one/ two/ --ranks 4,8            recordings of 1 and of 2 ranks
  ringscope predict one/ two/ --ranks 8 --measured four/
  ringscope predict one/ two/ --ranks 16 --json -
"""
)
@click.argument("one", type=_PATH)
@click.argument("two", type=_PATH)
@click.option("--ranks", metavar="N,N", help="How many ranks to predict for, from 2 on.")
@click.option("--measured", "larger", type=_PATH, help="Compare the prediction with this run.")
@click.option("--json", "as_json", type=click.Path(path_type=Path, allow_dash=True), help="Write JSON; - is stdout.")
def command(one: Path, two: Path, ranks: str | None, larger: Path | None, as_json: Path | None) -> None:
    """Predict the time per step on more ranks.

    ONE and TWO are recordings of the same cell on 1 and on 2 ranks (files or directories of them). The prediction is
    an interval: what the network adds is known between its bandwidth and its latency.
    """
    if ranks is None and larger is None:
        raise RingscopeError("nothing to predict: name the ranks, as --ranks 4,8, or a run with --measured")
    show([one, two], "--ranks", ranks or "", larger, as_json)


def show(paths: list[Path], option: str, ranks: str, larger: Path | None, as_json: Path | None) -> None:
    """Predict and print. `option` is what asked for the `ranks`."""
    import json

    from ..judging import predict, subject
    from ..views import predict as view

    try:
        wanted = [int(part) for part in ranks.split(",") if part.strip()]
    except ValueError:
        raise RingscopeError(f"{option} {ranks}: write it as {option} 4,8") from None
    one, two = (subject.load([path]) for path in paths)
    found = predict.outlook(one, two, wanted, subject.load([larger]) if larger else None)
    if as_json is None:
        click.echo(view.text(found))
    else:
        write_json(json.dumps(predict.to_json(found), indent=1) + "\n", as_json)
