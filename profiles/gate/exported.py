"""Values of a run for other tools. The names are the same in every run, so that tools can follow them."""

from __future__ import annotations

from dataclasses import dataclass

from ..measuring.subject import Subject
from .baseline import work
from .baseline_file import Baseline
from .history import RATE, STEP, run_of
from .metrics import HIGHER_IS_BETTER, RECORDED
from .of_logs import BUS, WAITING


@dataclass(frozen=True, slots=True)
class Value:
    benchmark: str  # the cell (model, ranks and batch), or `training` for recordings without a cell
    measure: str
    unit: str  # "ns", "GB/s" or "share"
    value: float
    smaller_is_better: bool = True


def values(subject: Subject) -> list[Value]:
    """Step time in total and by owner, time per sample of each cell, bus bandwidths, and shares. Raises RingscopeError
    if neither a time nor a bandwidth is known."""
    run = run_of(subject, "", None)
    name = _name(run.of)
    found = [Value(name, STEP, "ns", run.times[STEP])] if STEP in run.times else []
    found += [Value(name, f"{owner}_ns", "ns", ns) for owner, ns in run.ledger_ns.items()]
    found += [Value(_cell(one), "sample_ns", "ns", ns) for one, ns in run.times.items() if one.startswith(RATE)]
    for metric, value in run.of.metrics.items():
        kind = metric.partition("[")[0]
        if kind == BUS != metric:
            found.append(Value(_cell(metric), kind, "GB/s", value, smaller_is_better=False))
        # Samples/s are given above, as time per sample.
        if kind not in (*RECORDED, WAITING, "efficiency") or metric == "efficiency":
            continue
        benchmark = _cell(metric) if kind != metric else name
        found.append(Value(benchmark, kind, "share", value, kind not in HIGHER_IS_BETTER))
    return found


def _name(of: Baseline) -> str:
    return work(of.cell) if of.cell else "training"


def _cell(metric: str) -> str:
    return metric.partition("[")[2].removesuffix("]")
