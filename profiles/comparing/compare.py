"""Compare two runs or two sets of recordings: may they be compared, what changed, and is the change more than noise?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from statistics import median
from typing import Any

from ..gate import same_work
from ..gate.baseline import gpu_names, machine_gpu_names
from ..ground.errors import RingscopeError
from ..ground.stats import Difference, difference
from ..measuring.subject import Subject
from ..model.measures import OWNERS, Measures
from ..runs.cell import SETTINGS, Cell
from .loss_ledger import LossLedger, losses
from .named_changes import NamedChange, NamedChanges, by_kernel, by_layer, by_operator

# Changes below this share count as none: one recording or launch per side does not show its noise, and steps of one run
# agree within about 2 %.
NOISE_FLOOR = 0.02
# Settings that change the work of a step. Cells that differ only in other settings can be compared.
WORK = ("model", "ranks", "per_rank_batch")
_OTHERS = {one.name for one in SETTINGS if not one.derived} - {
    *WORK,
    "steps",
    "warmup",
}  # leaves out settings that only say how long was measured
_FACTS = (*WORK, *(one.name for one in SETTINGS if one.name in _OTHERS), "options")


@dataclass(frozen=True, slots=True)
class Likeness:
    """Facts that are equal in two subjects, and facts that differ. `score`: the share that is equal, 0..1."""

    alike: dict[str, Any]
    unlike: dict[str, tuple[Any, Any]]

    @property
    def score(self) -> float | None:
        known = len(self.alike) + len(self.unlike)
        return len(self.alike) / known if known else None

    @property
    def comparable(self) -> bool:
        """True if GPUs (or CPU), model, batch and number of ranks are equal, so that a difference shows a change."""
        return not {"gpus", "cpu", *WORK} & set(self.unlike)


@dataclass(frozen=True, slots=True)
class Change:
    """The change of an owner's time per step; None if it is unknown on either side."""

    owner: str
    change_ns: Fraction | None
    share_of_step: float | None  # share of the earlier step


@dataclass(frozen=True, slots=True)
class CellChange:
    """Throughput of one cell in both sweeps, in samples/s."""

    cell: str
    before: float
    after: float
    ratio: float
    launches: tuple[int, int]
    difference: Difference | None  # None with fewer than two launches per side
    verdict: str  # faster, slower, no difference; or "faster, too few launches to tell"


@dataclass(slots=True)
class Comparison:
    before: str
    after: str
    likeness: Likeness
    ledger: LossLedger | None = None
    changes: list[Change] = field(default_factory=list)
    step_verdict: str | None = None  # verdict on the recordings: faster, slower, no difference
    other_work: str = ""  # why the recordings' kernels may be of another model; "" if a record names both models
    kernels: NamedChanges | None = None
    operators: NamedChanges | None = None
    layers: NamedChanges | None = None
    cells: list[CellChange] = field(default_factory=list)
    noise_floor: float = NOISE_FLOOR
    reasons: list[str] = field(default_factory=list)  # reasons why a part of the comparison is missing


def compare(before: Subject, after: Subject) -> Comparison:
    """Compare two subjects. Raises RingscopeError if they have nothing in common."""
    found = Comparison(before.label, after.label, likeness(before, after))
    if before.measures is not None and after.measures is not None:
        try:
            found.ledger = losses(before.measures, after.measures)
        except RingscopeError as error:
            found.reasons.append(str(error))
        else:
            found.changes = _changes(found.ledger)
            found.step_verdict = _by_floor(float(found.ledger.step_before_ns / found.ledger.step_after_ns))
        _by_name(found, before.measures, after.measures)
        found.other_work = other_work(before, after)
    found.reasons += [subject.unmeasured for subject in (before, after) if subject.unmeasured]
    if before.scaling is not None and after.scaling is not None:
        found.cells = _cells(before, after)
        if not found.cells:
            found.reasons.append("the sweeps have no cell in common; compare sweeps of the same grid")
    if found.ledger is None and found.kernels is None and not found.cells:
        why = "; ".join(found.reasons) or "one side is a sweep without recordings, the other side is recordings"
        raise RingscopeError(f"nothing to compare between {before.label} and {after.label}: {why}")
    return found


def _by_name(found: Comparison, before: Measures, after: Measures) -> None:
    try:
        found.kernels = by_kernel(before, after, NOISE_FLOOR)
        found.operators = by_operator(before, after, NOISE_FLOOR)
        found.layers = by_layer(before, after, NOISE_FLOOR)
    except RingscopeError as error:
        found.reasons.append(str(error))


def other_work(before: Subject, after: Subject) -> str:
    """The reason why the first GPUs of both did not do the same work, by their kernels; "" if they may have, or if
    records name the model of both."""
    known = likeness(before, after)
    if set(WORK) & {*known.alike, *known.unlike}:
        return ""
    if before.measures is None or after.measures is None or not before.measures.gpus or not after.measures.gpus:
        return ""
    first = before.measures.gpus[0]
    return same_work.unlike(same_work.kernels(first), first.kernels.per_step, after.measures.gpus[0])


def likeness(before: Subject, after: Subject) -> Likeness:
    """Compare the facts that are known of both subjects."""
    recorded = before.measures is not None and after.measures is not None
    one, other = (_facts(subject, recorded) for subject in (before, after))
    shared = [name for name in one if name in other]
    alike = {name: one[name] for name in shared if one[name] == other[name]}
    return Likeness(alike, {name: (one[name], other[name]) for name in shared if name not in alike})


def _facts(subject: Subject, recorded: bool) -> dict[str, Any]:
    """Known facts of a subject by name. recorded: True if both subjects are recordings; else the machine's GPUs are a
    fact."""
    facts: dict[str, Any] = {}
    if names := (not recorded and machine_gpu_names(subject)) or gpu_names(subject):
        facts["gpus"] = names
    elif subject.machine.get("cpu"):
        facts["cpu"] = subject.machine["cpu"]
    packages: Mapping[str, Any] = subject.machine.get("packages") or {}
    facts |= {f"version of {name}": packages[name] for name in ("tensorflow", "keras", "horovod") if packages.get(name)}
    if subject.measures is not None:
        facts["recorded ranks"] = len(subject.measures.gpus)
    cell: Cell | None = subject.record.cell if subject.record else None
    if cell is not None:
        facts |= {name: getattr(cell, name) for name in _FACTS}
    return facts


def _changes(ledger: LossLedger) -> list[Change]:
    step = ledger.step_before_ns
    found = [
        Change(owner, ns, float(ns / step) if ns is not None and step else None)
        for owner, ns in ((owner, ledger.loss_ns[owner]) for owner in OWNERS)
    ]
    return sorted(found, key=lambda change: abs(float(change.change_ns or 0)), reverse=True)


def _by_floor(ratio: float) -> str:
    """The verdict on a throughput ratio (after / before) by the noise floor alone: faster, slower or no difference."""
    if abs(ratio - 1) <= NOISE_FLOOR:
        return "no difference"
    return "faster" if ratio > 1 else "slower"


def _cells(before: Subject, after: Subject) -> list[CellChange]:
    one, other = _throughputs(before), _throughputs(after)
    found = []
    asked = [row.cell.id for row in before.scaling.cells] if before.scaling else []
    for cell in (cell for cell in dict.fromkeys([*asked, *one]) if cell in one and cell in other):
        first, second = one[cell], other[cell]
        tested = difference(first, second) if min(len(first), len(second)) > 1 else None
        then, now = median(first), median(second)
        found.append(
            CellChange(
                cell=cell,
                before=then,
                after=now,
                ratio=now / then,
                launches=(len(first), len(second)),
                difference=tested,
                verdict=_verdict(now / then, tested),
            )
        )
    return found


def _verdict(ratio: float, tested: Difference | None) -> str:
    """The verdict on throughput: `no difference` within the noise floor; beyond it by the test if there are enough
    launches (4 per side), else the direction with "too few launches to tell"."""
    floor = _by_floor(ratio)
    if floor == "no difference":
        return floor
    if tested is None or not tested.resolvable:
        return f"{floor}, too few launches to tell"
    return floor if tested.significant else "no difference"


def _throughputs(subject: Subject) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in subject.scaling.launches if subject.scaling else ():
        if row.status == "ok" and row.samples_per_s_global and not row.profiled:
            found.setdefault(row.cell.id, []).append(row.samples_per_s_global)
    return found


def _named(changes: NamedChanges | None) -> dict[str, Any] | None:
    if changes is None:
        return None

    def row(change: NamedChange) -> dict[str, Any]:
        times = ("before_ns", "after_ns", "idle_before_ns", "idle_after_ns")
        return {"name": change.name, "state": change.state} | {one: round(getattr(change, one)) for one in times}

    return {"per": changes.per, "rows": [row(one) for one in changes.rows], "others": row(changes.others)}


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for `json.dumps`; fractions of ns as the nearest integer."""
    ledger = comparison.ledger
    return {
        "schema": "ringscope.comparison/1",
        "before": comparison.before,
        "after": comparison.after,
        "comparable": comparison.likeness.comparable,
        "comparability": comparison.likeness.score,
        "alike": comparison.likeness.alike,
        "unlike": {name: list(pair) for name, pair in comparison.likeness.unlike.items()},
        "noise_floor": comparison.noise_floor,
        "step_before_ns": None if ledger is None else round(ledger.step_before_ns),
        "step_after_ns": None if ledger is None else round(ledger.step_after_ns),
        "step_verdict": comparison.step_verdict,
        "other_work": comparison.other_work or None,
        "changes": [
            {
                "owner": c.owner,
                "change_ns": None if c.change_ns is None else round(c.change_ns),
                "share": c.share_of_step,
            }
            for c in comparison.changes
        ],
        "kernels": _named(comparison.kernels),
        "operators": _named(comparison.operators),
        "layers": _named(comparison.layers),
        "cells": [asdict(cell) for cell in comparison.cells],
        "reasons": comparison.reasons,
    }
