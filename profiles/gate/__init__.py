"""Check a run against budgets and a baseline (docs/guides/ci.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..doubts import trust
from ..ground import numbers
from ..ground.errors import RingscopeError
from ..measuring.subject import Subject
from ..model.measures import GpuMeasures, Trust
from ..scaling.rows import CellRow
from . import of_logs, same_work
from .baseline import BASELINE_SCHEMA as BASELINE_SCHEMA
from .baseline import RECORDED as RECORDED
from .baseline import SHARES, Baseline
from .baseline import from_json as from_json
from .baseline import load as load
from .baseline import to_json as to_json
from .of_logs import LOGGED

HOLDS, BROKEN, UNJUDGED = "holds", "broken", "cannot be judged"
EXIT_CODES = {HOLDS: 0, BROKEN: 1, UNJUDGED: 2}
# For these metrics higher is better; for all others, lower.
HIGHER_IS_BETTER = ("efficiency", "samples_per_s_global", "compute_share", of_logs.BUS)
SWEPT = ("efficiency", "samples_per_s_global")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's value on the worst GPU or cell. `where` names that GPU or cell or, if the value is None, gives the
    reason."""

    name: str
    value: float | None
    where: str


@dataclass(frozen=True, slots=True)
class Check:
    """One budget and its result."""

    metric: str
    bound: str  # max, min
    limit: float
    value: float | None
    status: str
    message: str
    where: str = ""  # if broken: the GPU and step, or the cell


@dataclass(slots=True)
class Judgement:
    """All checks of a run. The status is the worst of the checks': broken, then cannot be judged, then holds."""

    subject: str
    checks: list[Check] = field(default_factory=list)
    trust: Trust | None = None  # whether the recordings can be trusted

    @property
    def status(self) -> str:
        found = {check.status for check in self.checks}
        return next((status for status in (BROKEN, UNJUDGED) if status in found), HOLDS if found else UNJUDGED)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]


def metrics(subject: Subject) -> dict[str, Metric]:
    """All metrics of a run by name. Run directories add `samples_per_s_global[<cell id>]` and `efficiency[<cell id>]`,
    logs of NCCL's Inspector add `bus_gb_per_s[<kind of collective>]`."""
    found = {name: _recorded(subject, name) for name in RECORDED}
    found |= {name: Metric(name, *told) for name, told in of_logs.values(subject.logged).items()}
    for name in SWEPT:
        rows = [] if subject.scaling is None else subject.scaling.cells
        each = {row.cell.id: getattr(row, name) for row in rows if getattr(row, name) is not None and _tells(name, row)}
        for cell, value in each.items():
            found[f"{name}[{cell}]"] = Metric(f"{name}[{cell}]", value, f"cell {cell}")
        if each:
            worst = min(each, key=lambda cell: each[cell])
            found[name] = Metric(name, each[worst], f"cell {worst}")
        else:
            none = "no cell has this metric (efficiency needs a cell of several ranks and the same cell on one rank)"
            why = "not a sweep" if subject.scaling is None else none
            found[name] = Metric(name, None, why)
    return found


def _tells(name: str, row: CellRow) -> bool:
    """False for the efficiency of one rank, which is always 1."""
    return name != "efficiency" or row.cell.ranks > 1


def _recorded(subject: Subject, name: str) -> Metric:
    if subject.measures is None:
        none = "no recording: record with ringscope record, or name recordings"
        return Metric(name, None, subject.unmeasured or none)
    values = [(_share(gpu, name), gpu) for gpu in subject.measures.gpus]
    if any(value is None for value, _ in values) or not values:
        return Metric(
            name, None, "the recordings do not give this number; ringscope timeline shows the reason as a doubt"
        )
    pick = min if name in HIGHER_IS_BETTER else max
    value, gpu = pick(((v, g) for v, g in values if v is not None), key=lambda pair: pair[0])
    return Metric(name, value, _where(gpu, name))


def _share(gpu: GpuMeasures, name: str) -> float | None:
    if name == "input_stall_share":
        return gpu.input_stall_share
    ns = gpu.ledger_ns[SHARES[name]]
    return None if ns is None or not gpu.span_ns else ns / gpu.span_ns


def _where(gpu: GpuMeasures, name: str) -> str:
    """Words that name the GPU and its worst step in this metric."""
    place = gpu.title
    owners = ("idle_feed", "h2d") if name == "input_stall_share" else (SHARES[name],)
    if not gpu.steps.rows:
        return place
    pick = min if name in HIGHER_IS_BETTER else max
    worst = pick(gpu.steps.rows, key=lambda row: sum(row.ledger_ns[owner] or 0 for owner in owners))
    ns = sum(worst.ledger_ns[owner] or 0 for owner in owners)
    return f"{place}, look at step {worst.step} ({numbers.duration(ns)} of it)"


def judge(
    subject: Subject,
    *,
    at_most: Mapping[str, float],
    at_least: Mapping[str, float],
    baseline: Baseline | None = None,
) -> Judgement:
    """Check a run against budgets (`at_most` and `at_least`, by metric) and against a baseline. Raises RingscopeError
    for unknown metrics and impossible budgets."""
    known = metrics(subject)
    _refuse_what_says_nothing(at_most, at_least)
    for name in (*at_most, *at_least):
        if name not in known:
            names = ", ".join((*RECORDED, *SWEPT, *LOGGED))
            raise RingscopeError(f"unknown metric {name!r}; use one of {names}, also with [<cell id>] or [AllReduce]")
    judgement = Judgement(subject.label, trust=trust.judged(subject.measures) if subject.measures else None)
    judgement.checks += [_check(known[name], "max", limit, "budget") for name, limit in at_most.items()]
    judgement.checks += [_check(known[name], "min", limit, "budget") for name, limit in at_least.items()]
    if baseline is not None:
        judgement.checks += _against(subject, known, baseline)
    return judgement


def _refuse_what_says_nothing(at_most: Mapping[str, float], at_least: Mapping[str, float]) -> None:
    """Raises RingscopeError for budgets that every run meets (2 instead of 2 %), or that no run can meet."""
    for option, budgets in (("--max", at_most), ("--min", at_least)):
        for name, limit in budgets.items():
            if name in (*RECORDED, of_logs.WAITING) and not 0 <= limit <= 1:
                meant = f"; write {limit:g} % as {limit / 100:g}" if 1 < limit <= 100 else "; write 5 % as 0.05"
                raise RingscopeError(f"{option} {name}={limit:g}: a share lies between 0 and 1{meant}")
    for name in at_most:
        if at_least.get(name, at_most[name]) > at_most[name]:
            raise RingscopeError(f"--min {name} is above its --max: no run can satisfy both; leave one of them out")


def _check(metric: Metric, bound: str, limit: float, what: str) -> Check:
    if metric.value is None:
        text = f"{metric.name} is unknown: {metric.where}"
        return Check(metric.name, bound, limit, None, UNJUDGED, text)
    holds = metric.value <= limit if bound == "max" else metric.value >= limit
    relation = "at most" if bound == "max" else "at least"
    text = f"{metric.name} = {metric.value:.6g}, {what} {relation} {limit:.6g}"
    if holds:
        return Check(metric.name, bound, limit, metric.value, HOLDS, text)
    return Check(metric.name, bound, limit, metric.value, BROKEN, f"{text} ({metric.where})", metric.where)


def _against(subject: Subject, known: Mapping[str, Metric], baseline: Baseline) -> list[Check]:
    why = unlike(subject, baseline, "the baseline")
    if why or not baseline.metrics:
        text = f"{why}; write a baseline of this run" if why else "the baseline has no metrics; write it again"
        return [Check("baseline", "max", 0.0, None, UNJUDGED, f"{text} with --write-baseline")]
    checks = []
    for name, value in baseline.metrics.items():
        metric = known.get(name, Metric(name, None, "this run does not have the metric"))
        if name.split("[")[0] in HIGHER_IS_BETTER:
            slack = baseline.relative * value
            checks.append(_check(metric, "min", value - slack, f"baseline {value:.6g},"))
        else:
            slack = baseline.relative * value + baseline.absolute_share
            checks.append(_check(metric, "max", value + slack, f"baseline {value:.6g},"))
    return checks


def unlike(subject: Subject, baseline: Baseline, it: str) -> str:
    """The reason why a run cannot be compared with a baseline, or "". it: words for the baseline in that reason."""
    mine = gpu_names(subject)
    if list(baseline.gpus) != mine:
        return f"unlike machines: {it} ran on {_names(baseline.gpus)}, this run on {_names(mine)}"
    ranks = of_logs.ranks(subject.logged) if subject.logged else None
    if ranks != baseline.ranks:
        return f"unlike work: {it} has logs of {baseline.ranks or 'no'} ranks, this run of {ranks or 'no'} ranks"
    cell = subject.record.cell.id if subject.record else None
    if cell and baseline.cell:
        if (before := work(baseline.cell)) == (now := work(cell)):
            return ""
        return f"unlike work: {it} trained {before}, this run {now}"
    first = _first_gpu(subject)
    why = first and same_work.unlike(baseline.kernels, baseline.kernels_per_step, first)
    return f"unlike recordings: {why}" if why else ""


def work(cell: str) -> str:
    """The part of a cell's id that names the model, ranks and batch. Cells that are compared may differ in other
    settings."""
    return "-".join(cell.split("-")[:3])


def _names(gpus: Sequence[str]) -> str:
    return ", ".join(gpus) or "no GPU"


def gpu_names(subject: Subject) -> list[str]:
    """Sorted names of the GPUs that a run was measured on."""
    if subject.measures is not None:
        return sorted(gpu.name or "unknown GPU" for gpu in subject.measures.gpus)
    return machine_gpu_names(subject)


def machine_gpu_names(subject: Subject) -> list[str]:
    """Sorted names of all GPUs of the machine on which a run's launches ran."""
    return sorted(str(gpu.get("name", "unknown GPU")) for gpu in subject.machine.get("gpus") or ())


def _first_gpu(subject: Subject) -> GpuMeasures | None:
    return subject.measures.gpus[0] if subject.measures and subject.measures.gpus else None


def baseline_of(subject: Subject) -> Baseline:
    """Make a baseline from all known metrics of a run. Raises RingscopeError if none is known."""
    values = {name: metric.value for name, metric in metrics(subject).items() if metric.value is not None}
    if not values:
        raise RingscopeError(
            f"{subject.label}: no metric is known, so there is nothing to compare later runs with; name a run that "
            "has measures"
        )
    first = _first_gpu(subject)
    return Baseline(
        values,
        gpu_names(subject),
        subject.record.cell.id if subject.record else None,
        kernels_per_step=first.kernels.per_step if first else None,
        kernels=same_work.kernels(first) if first else {},
        ranks=of_logs.ranks(subject.logged) if subject.logged else None,
    )
