"""Compare a run with a baseline, and make a baseline of a run. baseline_file.py holds a baseline's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ground.errors import RingscopeError
from ..measuring.subject import Subject
from ..model.measures import GpuMeasures
from . import of_logs, same_work
from .baseline_file import Baseline
from .checks import UNJUDGED, Check, checked
from .metrics import HIGHER_IS_BETTER, Metric, metrics


def against(subject: Subject, known: Mapping[str, Metric], baseline: Baseline) -> list[Check]:
    """A check for each metric of the baseline, within its tolerances; or one that says why the run cannot be compared.
    known: the run's metrics."""
    why = unlike(subject, baseline, "the baseline")
    if why or not baseline.metrics:
        text = f"{why}; write a baseline of this run" if why else "the baseline has no metrics; write it again"
        return [Check("baseline", "max", 0.0, None, UNJUDGED, f"{text} with --write-baseline")]
    checks = []
    for name, value in baseline.metrics.items():
        metric = known.get(name, Metric(name, None, "this run does not have the metric"))
        if name.split("[")[0] in HIGHER_IS_BETTER:
            slack = baseline.relative * value
            checks.append(checked(metric, "min", value - slack, f"baseline {value:.6g},"))
        else:
            slack = baseline.relative * value + baseline.absolute_share
            checks.append(checked(metric, "max", value + slack, f"baseline {value:.6g},"))
    return checks


def unlike(subject: Subject, baseline: Baseline, it: str) -> str:
    """The reason why a run cannot be compared with a baseline, or "". it: words for the baseline in that reason."""
    mine = gpu_names(subject)
    if list(baseline.gpus) != mine:
        return f"unlike machines: {it} ran on {with_numbers(baseline.gpus)}, this run on {with_numbers(mine)}"
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


def with_numbers(gpus: Sequence[str]) -> str:
    """The names of GPUs, each with its number, such as `2 x NVIDIA H200`."""
    return ", ".join(f"{gpus.count(one)} x {one}" for one in dict.fromkeys(gpus)) or "no GPU"


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
