"""Values of a run for other tools, by names that stay the same from run to run."""

from __future__ import annotations

from dataclasses import dataclass

from ..measuring.subject import Subject
from . import HIGHER_IS_BETTER, RECORDED, work
from .baseline import Baseline
from .history import RATE, STEP, run_of
from .of_logs import BUS


@dataclass(frozen=True, slots=True)
class Value:
    benchmark: str  # the work: a cell, or what a recording's launch trained
    measure: str
    unit: str  # ns, share
    value: float
    smaller_is_better: bool = True


def values(subject: Subject) -> list[Value]:
    """The time of a step, by owner; of a sample per cell; and all shares. Raises RingscopeError where no time is
    known."""
    run = run_of(subject, "", None)
    name = _name(run.of)
    found = [Value(name, STEP, "ns", run.times[STEP])] if STEP in run.times else []
    found += [Value(name, f"{owner}_ns", "ns", ns) for owner, ns in run.ledger_ns.items()]
    found += [Value(_cell(one), "sample_ns", "ns", ns) for one, ns in run.times.items() if one.startswith(RATE)]
    for metric, value in run.of.metrics.items():
        kind = metric.partition("[")[0]
        if kind == BUS != metric:
            found.append(Value(_cell(metric), kind, "GB/s", value, smaller_is_better=False))
        if kind not in (*RECORDED, "efficiency") or metric == "efficiency":  # rates are told as times, and by cell
            continue
        benchmark = _cell(metric) if kind != metric else name
        found.append(Value(benchmark, kind, "share", value, kind not in HIGHER_IS_BETTER))
    return found


def _name(of: Baseline) -> str:
    return work(of.cell) if of.cell else "training"


def _cell(metric: str) -> str:
    return metric.partition("[")[2].removesuffix("]")
