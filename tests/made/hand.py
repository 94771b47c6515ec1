"""GpuMeasures written down by hand, for tests of what is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.model.collectives import Collectives
from profiles.model.measures import CLASSES, OWNERS, GpuMeasures, Measures
from profiles.model.operations import Copies, Kernels, NamedKernel
from profiles.model.steps import Gaps, Percentiles, StepRow, Steps
from profiles.model.timeline import Recording


def gpu(
    *,
    steps: int = 10,
    step_ns: int = 10_000_000,
    ledger: Mapping[str, int | None] | None = None,
    busy: Mapping[str, int] | None = None,
    rank: int = 0,
    kernels: Mapping[str, Any] | None = None,
    groups: Mapping[str, tuple[int, int]] | None = None,
    top: Sequence[tuple[str, int, int]] = (),
    h2d: Mapping[str, Any] | None = None,
    d2h_per_step: int = 0,
    per_step_collectives: int | None = None,
    waiting: int | None = None,
    transfer: int | None = None,
    arrived_last: float | None = None,
    inputs: Mapping[str, Any] | None = None,
    host: Sequence[dict[str, Any]] = (),
) -> GpuMeasures:
    """A GPU with equal steps. `ledger`, `busy`, `waiting`, `transfer` and groups' times are ns per step; what the
    ledger leaves is compute's."""
    given: dict[str, int | None] = dict.fromkeys(OWNERS, 0) | dict(ledger or {})
    given["compute"] = (ledger or {}).get("compute") or step_ns - sum(
        v or 0 for k, v in given.items() if k != "compute"
    )
    given["idle_unknown"] = (given["idle_unknown"] or 0) + step_ns - sum(v or 0 for v in given.values())
    total = {name: None if ns is None else ns * steps for name, ns in given.items()}
    busy_total = {name: (busy or {}).get(name, given[name] or 0) * steps for name in CLASSES}
    rows = [
        StepRow(i, i * step_ns, (i + 1) * step_ns, dict(given), None, given["idle_feed"], 100) for i in range(steps)
    ]
    copies = {
        name: Copies(0, 0, busy_total[name], total[name] or 0, None, None, None, 0, 0)
        for name in ("h2d", "d2h", "p2p", "d2d")
    }
    for name, value in (h2d or {}).items():
        setattr(copies["h2d"], name, value)
    copies["d2h"].count = d2h_per_step * steps
    feed_ns = given["idle_feed"]
    found = Kernels(100 * steps, 0, 0, 100, 10, 20_000, 0.0, None, [NamedKernel(*one) for one in top], {}, {})
    found.groups = {
        name: {"count": count * steps, "total_ns": ns * steps} for name, (count, ns) in (groups or {}).items()
    }
    for name, value in (kernels or {}).items():
        setattr(found, name, value)
    collective_ns = total["collective"] or 0
    return GpuMeasures(
        recordings=[rank],
        rank=rank,
        device=rank,
        uuid=f"GPU-{rank}",
        bus_id=None,
        name="NVIDIA H200",
        window="steps",
        window_ns=[0, steps * step_ns],
        span_ns=steps * step_ns,
        ledger_ns=total,
        busy_ns=dict(busy_total),
        kernels=found,
        copies=copies,
        collectives=Collectives(
            count=(per_step_collectives or 0) * steps,
            per_step=per_step_collectives,
            busy_ns=busy_total["collective"],
            exposed_ns=collective_ns,
            overlap=None,
            bytes_per_step=None,
            bus_gb_per_s=None,
            skew_ns=None,
            waiting_ns=None if waiting is None else waiting * steps,
            transfer_ns=None if transfer is None else transfer * steps,
            arrived_last_share=arrived_last,
        ),
        steps=Steps("marks", None, steps, 0, 0, 0, Percentiles(step_ns, step_ns, step_ns), rows),
        feed_gaps=None
        if feed_ns is None
        else Gaps(steps if feed_ns else 0, feed_ns * steps, feed_ns, feed_ns, feed_ns),
        batch_gaps=None,
        batch_gap_ledger_ns=None,
        input_copies=dict(inputs) if inputs else None,
        input_stall_share=None if feed_ns is None else (feed_ns + (given["h2d"] or 0)) / step_ns,
        host_while_idle=list(host),
        outside_calls_ns=max(0, (given["idle_launch"] or 0) * steps - sum(e["ns"] for e in host if e["kind"] == "api"))
        if host
        else None,
    )


def measures(gpus: Sequence[GpuMeasures]) -> Measures:
    return Measures([Recording(f"rank{i}.sqlite", "nsys-sqlite", "nsys", rank=i) for i in range(len(gpus))], list(gpus))
