"""A training's timeline with one fault or none: equal steps, marked, launched ahead unless the fault is to be late."""

from __future__ import annotations

from typing import Any

from profiles.model.timeline import Timeline
from tests.made.build import Build

US, MS = 1_000, 1_000_000
LEAD_NS = 300 * US  # how long before its kernel a launch call is made
CONV = "xmma_fprop_implicit_gemm_bf16"


def training(
    *,
    steps: int = 8,
    kernels: tuple[tuple[str, int], ...] = ((CONV, 9 * MS),),
    hand_over_ns: int = 0,
    late_ns: int = 0,
    in_call: bool = True,
    small_copy: int = 0,
    synced_ns: int = 0,
    stalled_ns: int = 0,
    copy: dict[str, Any] | None = None,
    fetch_ns: int = 0,
    all_reduces: int = 0,
    all_reduce_ns: int = 0,
    rank: int = 0,
    arrives_late_ns: int = 0,
    waits_ns: int = 0,
) -> Timeline:
    """One GPU. All times are per step.

    kernels: (name, ns), one after the other, `hand_over_ns` apart.
    late_ns: the first is launched so long after the GPU ran dry; `in_call`: its launch call is under way meanwhile.
    synced_ns: the same after the host has waited for the GPU. stalled_ns: launched ahead, it starts so much later.
    small_copy: bytes that are copied to the GPU as soon as it is dry.
    copy: {"ns", "bytes", "memory", "when" ("due", or "ahead": for the step after next), "wait_ns" (the `wait input`
        before it), "api", "exposed_ns" (of a copy ahead)}.
    fetch_ns: a copy to the host that the host then waits for.
    all_reduces, of all_reduce_ns each: a rank that arrives_late_ns starts them so much later than the others, which
        wait waits_ns.
    """
    made = Build(
        device=rank, pid=100 + rank, path=f"rank{rank}.sqlite", rank=rank, rank_source="marks", origin_utc_ns=0
    )
    made.device(rank, uuid=f"GPU-{rank}", name="NVIDIA H200")
    now = 10 * MS
    if copy and copy["when"] == "ahead":
        for ahead_ns in (5 * MS, 3 * MS):  # the first two steps' batches
            _copied_ahead(made, {**copy, "exposed_ns": 0}, now - ahead_ns, MS)
    for step in range(steps):
        begun = now - LEAD_NS - 20 * US
        dry = now
        if copy and copy["when"] == "due":
            now = _copied_when_due(made, copy, now)
        if small_copy:
            called = (dry - 200 * US, dry - 199 * US)
            made.copy("h2d", dry + 2 * US, dry + 3 * US, size=small_copy, call=called, stream=17)
        if late_ns:
            made.api("cudaEventQuery", dry + US, dry + 2 * US)
            call = (dry + 10 * US, now + late_ns) if in_call else (now + late_ns - 2 * US, now + late_ns)
            now += late_ns
        elif synced_ns:
            made.api("cudaStreamSynchronize", dry - max(synced_ns, 50 * US), dry + US)
            now += synced_ns
            call = (now - 2 * US, now)
        else:
            call = (now - LEAD_NS, now - LEAD_NS + US)
            now += stalled_ns
        for number, (name, ns) in enumerate(kernels):
            made.kernel(now, now + ns, name, call=call)
            if copy and copy["when"] == "ahead" and number == 0:
                _copied_ahead(made, copy, now, ns)
            now += ns + hand_over_ns
            call = (now - LEAD_NS, now - LEAD_NS + US)
        now -= hand_over_ns
        for _ in range(all_reduces):
            start = now + arrives_late_ns
            launched = (start - LEAD_NS, start - LEAD_NS + US) if not arrives_late_ns else (start - 2 * US, start)
            made.kernel(
                start,
                start + waits_ns + all_reduce_ns,
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                stream=20,
                call=launched,
            )
            now = start + waits_ns + all_reduce_ns
        if copy and copy.get("exposed_ns"):
            now += copy["exposed_ns"]  # the copy that runs ahead has the GPU to itself for so long
        if fetch_ns:
            made.copy("d2h", now, now + 2 * US, size=4, call=(now - 5 * US, now + 2 * US))
            made.api("cuStreamSynchronize", now, now + fetch_ns)
            now += fetch_ns
        made.mark(f"step {step}", begun, now - LEAD_NS - 21 * US)
    made.mark(f"step {steps}", now - LEAD_NS - 20 * US)  # the recording ends in it
    if copy and copy["when"] == "due":
        now = _copied_when_due(made, copy, now)
    made.kernel(now, now + US, kernels[0][0], call=(now - LEAD_NS, now - LEAD_NS + US))
    return made.timeline()


def _copied_when_due(made: Build, copy: dict[str, Any], now: int) -> int:
    """The batch is asked for when the GPU has run dry; the time its copy ends."""
    wait = copy.get("wait_ns", 100 * US)
    made.mark("wait input", now - LEAD_NS, now + wait + 5 * US)
    start = now + wait
    made.mark("#edge_name=edge_1_IteratorGetNext#", start - US, start, domain="TSL", tid=2)
    more = {"src_kind": copy["memory"], "api": copy.get("api", "cuMemcpyHtoDAsync_v2"), "stream": 14}
    made.copy("h2d", start + 2 * US, start + copy["ns"], size=copy["bytes"], call=(start, start + copy["ns"]), **more)
    return int(start + copy["ns"])


def _copied_ahead(made: Build, copy: dict[str, Any], now: int, kernel_ns: int) -> None:
    """The batch after the next, hidden under the first kernel but for its last `exposed_ns`."""
    end = now + kernel_ns + copy.get("exposed_ns", 0)
    start = end - copy["ns"]
    more = {"src_kind": copy["memory"], "api": "cuMemcpyHtoDAsync_v2", "stream": 14}
    made.copy("h2d", start, end, size=copy["bytes"], call=(start - 5 * US, start), **more)
