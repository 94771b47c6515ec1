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
    """The format `customSmallerIsBetter` of github-action-benchmark. Shares of which more is better are left out; a
    bandwidth becomes the seconds that a GB takes."""
    rows = [
        {"name": f"{one.benchmark}: {one.measure}", "unit": one.unit, "value": one.value}
        for one in (_seconds_per_gb(one) if one.unit == "GB/s" else one for one in values)
        if one.smaller_is_better
    ]
    return json.dumps(rows, indent=1) + "\n"


def _seconds_per_gb(one: Value) -> Value:
    return Value(one.benchmark, "bus_s_per_gb", "s/GB", 1 / one.value)


def openmetrics(values: Sequence[Value]) -> str:
    """OpenMetrics text (prometheus.io/docs/specs/om/open_metrics_spec): gauges in base units: seconds, ratios, bytes
    per second."""
    lines = []
    for unit, is_a, base, scale, told in (
        ("ns", "time", "seconds", 1e9, "Time per step, per step by owner, and per sample."),
        ("share", "share", "ratio", 1, "Shares of the window, and efficiency as a share of perfect scaling."),
        ("GB/s", "bandwidth", "bytes_per_second", 1e-9, "Bus bandwidth of collectives."),
    ):
        found = [one for one in values if one.unit == unit]
        name = f"ringscope_{is_a}_{base}"
        lines += [f"# TYPE {name} gauge", f"# UNIT {name} {base}", f"# HELP {name} {told}"] if found else []
        for one in found:
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
    """The function that writes the format of the file's suffix. Raises RingscopeError for an unknown suffix."""
    for ending, written in FORMATS.items():
        if path.name.endswith(ending):
            return written
    raise RingscopeError(f"--export {path}: no format has this suffix; end the name with one of {', '.join(FORMATS)}")
