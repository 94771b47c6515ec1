"""What the window would take if some of its time went: an upper bound on what a change can give (docs/verdicts.md).

The window without what is saved, but never shorter than the busiest resource that is left: while the copies of a step
take longer than its kernels, hiding the copies cannot make the step as short as its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

from .measures import CLASSES, GpuMeasures


def span_without(
    gpu: GpuMeasures, saved_ns: Mapping[str, int], *, busy_saved_ns: Mapping[str, int] | None = None
) -> int:
    """ns of the window after saving `saved_ns` (owner -> ns of the ledger).

    `busy_saved_ns` (class -> ns): by how much a class's own busy time shrinks, where the change makes it do less
    rather than hides it. Savings beyond what an owner has are cut to it.
    """
    kept = gpu.span_ns - sum(min(ns, gpu.ledger_ns.get(owner) or 0) for owner, ns in saved_ns.items())
    shrunk = busy_saved_ns or {}
    resources = [(gpu.busy_ns.get(name) or 0) - shrunk.get(name, 0) for name in CLASSES]
    return max(kept, *resources, 1)


def gain(gpu: GpuMeasures, saved_ns: Mapping[str, int], *, busy_saved_ns: Mapping[str, int] | None = None) -> float:
    """The throughput ratio minus 1 that saving this much gives at most."""
    return gpu.span_ns / span_without(gpu, saved_ns, busy_saved_ns=busy_saved_ns) - 1
