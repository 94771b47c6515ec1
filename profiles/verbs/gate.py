"""`ringscope gate`: budgets and baselines for CI."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ..errors import RingscopeError


@click.command(
    epilog="""\b
Metrics of recordings, over the worst GPU, as shares (0..1) of its window:
  feed_gap_share input_stall_share compute_share exposed_collective_share exposed_h2d_share exposed_d2h_share
  exposed_p2p_share exposed_d2d_share exposed_memset_share idle_sync_share idle_launch_share
  idle_turnaround_share idle_wait_share idle_unknown_share
Metrics of sweeps, over the worst cell, or of one with [<cell id>]:
  efficiency samples_per_s_global

\b
Examples:
  ringscope gate runs/20261120-101500-node1 --min efficiency=0.9
  ringscope gate rank0.sqlite rank1.sqlite --max feed_gap_share=0.02 --max exposed_h2d_share=0.01
  ringscope gate recordings/ --write-baseline baseline.json
  ringscope gate recordings/ --baseline baseline.json --junit gate.xml --markdown gate.md
"""
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--max", "at_most", multiple=True, metavar="METRIC=VALUE", help="Broken above this value.")
@click.option("--min", "at_least", multiple=True, metavar="METRIC=VALUE", help="Broken below this value.")
@click.option("--baseline", type=click.Path(path_type=Path), help="Broken where this run is worse than that one.")
@click.option("--write-baseline", type=click.Path(path_type=Path), help="Write this run's metrics as a baseline.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the checks as JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write them as a Markdown table.")
@click.option("--strict", is_flag=True, help="One recording that cannot be read is an error.")
def command(
    paths: tuple[Path, ...],
    at_most: tuple[str, ...],
    at_least: tuple[str, ...],
    baseline: Path | None,
    write_baseline: Path | None,
    junit: Path | None,
    markdown: Path | None,
    strict: bool,
) -> None:
    """Hold a run directory, measures or recordings against budgets, or against a baseline.

    Exit code 0: all hold; 1: a budget is broken; 2: cannot be judged (no baseline, unlike machines, a metric that the
    run does not have), or wrong usage.
    """
    import json
    import sys

    from ..files import written_whole
    from ..judging import gate
    from ..judging import subject as subjects
    from ..views import gate as view

    def write(path: Path, text: str) -> None:
        with written_whole(path) as beside:
            beside.write_text(text)

    maxima, minima = _budgets(at_most, "--max"), _budgets(at_least, "--min")
    if not (maxima or minima or baseline or write_baseline):
        raise RingscopeError("nothing to hold the run against: give --max, --min or --baseline, or --write-baseline")
    against = gate.from_json(_json(baseline)) if baseline else None
    subject = subjects.load(paths, strict=strict)
    if write_baseline:
        write(write_baseline, json.dumps(gate.to_json(gate.baseline_of(subject)), indent=1) + "\n")
        click.echo(f"{write_baseline}: the baseline of {subject.label}")
        if not (maxima or minima or baseline):
            return
    judgement = gate.judge(subject, at_most=maxima, at_least=minima, baseline=against)
    if junit:
        write(junit, view.junit(judgement))
    if markdown:
        write(markdown, view.markdown(judgement))
    click.echo(view.text(judgement))
    sys.exit(judgement.exit_code)


def _budgets(given: tuple[str, ...], option: str) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            found[name.strip()] = math.nan
        if not math.isfinite(found[name.strip()]):
            raise RingscopeError(f"{option} {text}: write it as {option} feed_gap_share=0.02")
    return found


def _json(path: Path) -> object:
    import json

    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RingscopeError(f"{path}: no baseline there ({reason}); write one with --write-baseline") from None
