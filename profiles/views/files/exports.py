"""Values of a `ringscope gate` run in formats of benchmark trackers: Bencher, github-action-benchmark, OpenMetrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...gate.exported import Value
from ...ground.errors import RingscopeError


def bencher(values: Sequence[Value]) -> str:
    """Bencher Metric Format (bencher.dev/docs/reference/bencher-metric-format): benchmark -> measure -> value."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in values:
        found.setdefault(one.benchmark, {})[one.measure] = {"value": one.value}
    return json.dumps(found, indent=1) + "\n"


def github(values: Sequence[Value]) -> str:
    """`customSmallerIsBetter` of github-action-benchmark; values of which more is better are left out."""
    rows = [
        {"name": f"{one.benchmark}: {one.measure}", "unit": one.unit, "value": one.value}
        for one in values
        if one.smaller_is_better
    ]
    return json.dumps(rows, indent=1) + "\n"


def openmetrics(values: Sequence[Value]) -> str:
    """OpenMetrics text (prometheus.io/docs/specs/om/open_metrics_spec): gauges in base units, seconds and ratios."""
    lines = []
    for unit, base, scale, told in (
        ("ns", "seconds", 1e9, "Time of a step, of its owners and of a sample."),
        ("share", "ratio", 1, "Share of the window, or of perfect scaling."),
    ):
        name = f"ringscope_{'time' if unit == 'ns' else 'share'}_{base}"
        lines += [f"# TYPE {name} gauge", f"# UNIT {name} {base}", f"# HELP {name} {told}"]
        for one in (one for one in values if one.unit == unit):
            labels = f'benchmark="{_escaped(one.benchmark)}",measure="{_escaped(one.measure)}"'
            lines.append(f"{name}{{{labels}}} {one.value / scale!r}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


FORMATS: Final[dict[str, Callable[[Sequence[Value]], str]]] = {
    ".bmf.json": bencher,
    ".benchmark.json": github,
    ".openmetrics": openmetrics,
}


def of(path: Path) -> Callable[[Sequence[Value]], str]:
    """The function that writes the format of the file's ending. Raises RingscopeError for an unknown ending."""
    for ending, written in FORMATS.items():
        if path.name.endswith(ending):
            return written
    raise RingscopeError(
        f"--export {path}: this ending belongs to no format; end the name with one of {', '.join(FORMATS)}"
    )
