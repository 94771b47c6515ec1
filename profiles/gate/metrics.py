"""The metrics of a run that a gate can check, each on the worst GPU or cell."""

from __future__ import annotations

from dataclasses import dataclass

from ..ground import numbers
from ..measuring.subject import Subject
from ..model.measures import CLASSES, OWNERS, GpuMeasures
from ..scaling.rows import CellRow
from . import of_logs

# Metrics that are an owner's share of the window, and the owner's name in the ledger.
SHARES = {
    "feed_gap_share": "idle_feed",
    "compute_share": "compute",
    **{f"exposed_{name}_share": name for name in CLASSES if name != "compute"},
    **{f"{owner}_share": owner for owner in OWNERS if owner.startswith("idle_") and owner != "idle_feed"},
}
RECORDED = (*SHARES, "input_stall_share")
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


def metrics(subject: Subject) -> dict[str, Metric]:
    """All metrics of a run by name. Run directories add `samples_per_s_global[<cell id>]` and `efficiency[<cell id>]`,
    logs of NCCL add `bus_gb_per_s[<kind of collective>]`."""
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
