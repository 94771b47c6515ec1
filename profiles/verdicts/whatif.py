"""Estimate the window's length after a change, for an upper bound on the change's gain (docs/reference/findings.md).

The length is the window less the saved time, but no less than the busy time of any class that remains: if copies take
longer than kernels, a step whose copies are hidden still takes as long as its copies.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.findings import WhatIf
from ..model.measures import CLASSES, OWNERS, GpuMeasures

# Work that a change removes is done by fewer or larger kernels, in no less than a hundredth of its time. Without this
# bound, a program whose kernels are all short or element-wise would be millions of times as fast.
LEAST_LEFT = 100


def span_without(
    gpu: GpuMeasures, saved_ns: Mapping[str, int], *, busy_saved_ns: Mapping[str, int] | None = None
) -> int:
    """ns of the window after saving `saved_ns` (owner of the ledger -> ns). No owner saves more than its time in the
    ledger. `busy_saved_ns` (class -> ns) shrinks a class's busy time, down to one LEAST_LEFT-th of it, for a change
    that removes work instead of hiding it."""
    kept = gpu.span_ns - sum(min(ns, gpu.ledger_ns.get(owner) or 0) for owner, ns in saved_ns.items())
    shrunk = busy_saved_ns or {}
    busy = {name: gpu.busy_ns.get(name) or 0 for name in CLASSES}
    resources = [max(ns - shrunk.get(name, 0), ns // LEAST_LEFT) for name, ns in busy.items()]
    return max(kept, *resources, 1)


def each(gpu: GpuMeasures) -> list[WhatIf]:
    """ns of the window without the time of one owner, for each owner but compute that has any time, and without the
    time of all of them. Copies and collectives are hidden, not removed, so their busy time stays a lower bound."""
    losses = {owner: ns for owner in OWNERS if owner != "compute" and (ns := gpu.ledger_ns[owner])}
    alone = [_without(gpu, owner, {owner: ns}) for owner, ns in losses.items()]
    return [*alone, _without(gpu, "all", losses)] if losses else []


def _without(gpu: GpuMeasures, name: str, saved_ns: Mapping[str, int]) -> WhatIf:
    left = span_without(gpu, saved_ns)
    return WhatIf(name, left, gpu.span_ns / left - 1)
