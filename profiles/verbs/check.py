"""`ringscope check`: can this recording be trusted?"""

from __future__ import annotations

from pathlib import Path

import click

from .options import STDOUT, Named, Output, Verb, write_json


@click.command(
    cls=Verb,
    epilog="""\b
Examples:
  ringscope check report.sqlite
  ringscope check rank*.sqlite     # the ranks of one run, together
  ringscope check measures.json    # what was measured earlier
  ringscope check runs/ --json check.json
""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=Named())
@click.option("--json", "json_to", metavar="FILE", type=Output(stdout=True), help="Write JSON; - is stdout.")
@click.pass_context
def command(context: click.Context, /, paths: tuple[Path, ...], json_to: Path | None) -> None:
    """Can this recording, or all recordings of one run, be trusted?

    Each doubt is printed: what is wrong, which numbers it touches, and how to record it right. A number that is
    missing, or that is marked as a bound, takes no trust away.

    Exit code 0: yes; 1: with care; 2: no, or it cannot be read.
    """
    import json

    from ..doubts import trust
    from ..measuring import subject as subjects
    from ..views.terminal import progress_bar
    from ..views.terminal import recording as terminal
    from ..views.terminal import trust as view

    with progress_bar.stages() as progress:
        measures = subjects.measured(paths, progress)
    found = trust.to_json(measures)
    if json_to is not None:
        write_json(json.dumps(found, indent=1, ensure_ascii=False) + "\n", json_to)
    if json_to != STDOUT:
        terminal.say(view.text(found))
    context.exit(found["exit_code"])
