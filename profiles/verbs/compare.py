"""`ringscope compare`: what changed, by how much, and is it more than noise."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Named, Output, Verb, write_json


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  ringscope compare runs/20261120-101500-node1 runs/20261121-090000-node1
  ringscope compare before.sqlite after.sqlite
  ringscope compare prefetch/ device/ --json -
""",
)
@click.argument("before", type=Named())
@click.argument("after", type=Named())
@click.option("--json", "as_json", type=Output(stdout=True), help="Write JSON; - is stdout.")
def command(before: Path, after: Path, as_json: Path | None) -> None:
    """Compare two run directories, or two sets of recordings (files or directories of them).

    First come the machine, model, batch and versions of both. For recordings it shows the time per step of every kind
    of GPU work and every cause of idle time, with the exact difference, and which kernels, operators and layers
    changed. For run directories it shows the throughput of every cell, with an effect size and a test over launches.
    """
    import json

    from ..comparing import compare
    from ..measuring import subject
    from ..views.terminal import compare as view
    from ..views.terminal import progress_bar
    from ..views.terminal import recording as terminal

    with progress_bar.stages() as progress:
        sides = [subject.load([path], progress=progress) for path in (before, after)]
    found = compare.compare(*sides)
    if as_json is None:
        view.show(found, terminal.console())
    else:
        write_json(json.dumps(compare.to_json(found), indent=1) + "\n", as_json)
