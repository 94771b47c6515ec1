"""`ringscope gate`: budgets and baselines for CI."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..ground import terminals
from ..ground.errors import RingscopeError
from .options import Named, Output, Verb, refuse_ignored, strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    paths: tuple[Path, ...]
    at_most: tuple[str, ...]
    at_least: tuple[str, ...]
    baseline: Path | None
    write_baseline: Path | None
    history: Path | None
    export: tuple[Path, ...]
    junit: Path | None
    markdown: Path | None
    strict: bool

    @property
    def judges(self) -> bool:
        """True if the run is to be checked against a budget, a baseline or a history."""
        return bool(self.at_most or self.at_least or self.baseline or self.history)


@click.command(
    cls=Verb,
    epilog="""\b
Metrics of recordings, of the worst GPU, as shares (0..1) of its window:
  feed_gap_share input_stall_share compute_share exposed_collective_share
  exposed_h2d_share exposed_d2h_share exposed_p2p_share exposed_d2d_share
  exposed_memset_share idle_pause_share idle_peers_share idle_sync_share
  idle_launch_share idle_turnaround_share idle_wait_share idle_unknown_share
Metrics of sweeps, of the worst cell, or with [<cell id>] of one cell:
  efficiency samples_per_s_global
Metrics of logs of NCCL's Inspector or profiler plugin:
  bus_gb_per_s: of the slowest kind of collective
  bus_gb_per_s[AllReduce]: of this kind
  waiting_share: of the rank that waits most

\b
Examples:
  ringscope gate runs/20261120-101500-node1 --min efficiency=0.9
  ringscope gate rank*.sqlite --max feed_gap_share=0.02 \\
      --max exposed_h2d_share=0.01
  ringscope gate nccl-inspector-unknown-jobid/ \\
      --min "bus_gb_per_s[AllReduce]=300"
  ringscope gate recordings/ --write-baseline baseline.json
  ringscope gate recordings/ --baseline baseline.json --junit gate.xml \\
      --markdown gate.md
  ringscope gate recordings/ --history history.jsonl --export run.bmf.json \\
      --export run.openmetrics
""",
)
@click.argument("paths", nargs=-1, required=True, type=Named())
@click.option(
    "--max", "at_most", multiple=True, metavar="METRIC=VALUE", help="Broken if the metric is above this value."
)
@click.option(
    "--min", "at_least", multiple=True, metavar="METRIC=VALUE", help="Broken if the metric is below this value."
)
@click.option(
    "--baseline",
    type=Named(),
    help="Broken if a metric is worse than in this baseline, beyond the baseline's tolerances.",
)
@click.option("--write-baseline", type=Output(), help="Write this run's metrics as a baseline.")
@click.option(
    "--history",
    type=Output(),
    help="Broken if a step is slower than in the earlier runs of this file by more than their scatter. Adds the run "
    "to the file.",
)
@click.option(
    "--export",
    multiple=True,
    type=Output(),
    help="Write the run's times and shares; the suffix chooses the format: Bencher's (*.bmf.json), "
    "github-action-benchmark's (*.benchmark.json) or OpenMetrics (*.openmetrics).",
)
@click.option("--junit", type=Output(), help="Write the checks as JUnit XML.")
@click.option("--markdown", type=Output(), help="Write the checks as a Markdown table.")
@strict
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Check a run directory, measures or recordings against budgets, a baseline, or the history of its runs.

    Exit code 0: all checks hold; 1: one is broken; 2: wrong usage, or the run cannot be judged (no baseline, a baseline
    of other GPUs or of other work, a metric that the run does not have).
    """
    import json
    import sys
    from datetime import datetime, timezone

    from ..gate import baseline_file, exported, history
    from ..gate.baseline import baseline_of
    from ..gate.judgement import judge
    from ..ground.files import write_named
    from ..measuring import subject as subjects
    from ..views.files import exports
    from ..views.terminal import gate as view
    from ..views.terminal import progress_bar
    from ..views.terminal import recording as terminal

    given = Options(**options)
    if not (given.judges or given.write_baseline or given.export):
        raise RingscopeError(
            "nothing to check; give --max, --min, --baseline or --history, or --write-baseline or --export"
        )
    reported = ("junit", "markdown")
    refuse_ignored(
        context, [(not given.judges, reported, "reports checks; give --max, --min, --baseline or --history too")]
    )
    formats = {path: exports.of(path) for path in given.export}
    maxima, minima = _budgets(given.at_most, "--max"), _budgets(given.at_least, "--min")
    against = baseline_file.load(given.baseline) if given.baseline else None
    with progress_bar.stages() as progress:
        subject = subjects.load(given.paths, strict=given.strict, progress=progress)
    judgement = judge(subject, at_most=maxima, at_least=minima, baseline=against)
    values = exported.values(subject) if formats else []
    if given.history:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        judgement.checks += history.judged_and_kept(given.history, subject, now, _commit())
    for path, written in formats.items():
        write_named(path, written(values))
    if given.write_baseline:
        write_named(given.write_baseline, json.dumps(baseline_file.to_json(baseline_of(subject)), indent=1) + "\n")
        terminals.echo(f"{given.write_baseline}: the baseline of {subject.label}")
    if not given.judges:
        return
    if given.junit:
        write_named(given.junit, view.junit(judgement))
    if given.markdown:
        write_named(given.markdown, view.markdown(judgement))
    terminal.say(view.text(judgement))
    sys.exit(judgement.exit_code)


def _commit() -> str | None:
    """The commit that CI runs for, from the environment that GitHub or GitLab sets."""
    return os.environ.get("GITHUB_SHA") or os.environ.get("CI_COMMIT_SHA") or None


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
