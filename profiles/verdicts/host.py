"""Findings on the host between launches: waits for the GPU, Python, allocation, managed memory, pauses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..ground import numbers
from ..ground.numbers import share as percent
from ..metrics.doubts import PLAIN
from ..model.findings import Finding
from . import cuda_hip, host_idle
from .case import OTHER_LADDER, Case, degree
from .host_idle import called, lost_by


def loss_fetched(case: Case) -> Finding | None:
    """A finding on copies to the host in each step for which the host waits, mostly copies of a loss or metric."""
    if not case.fetches:
        return None
    waits = host_idle.waits_for(case, "d2h")
    return case.finding(
        "loss-fetched-every-step",
        host_idle.idle_ns(case, waits),
        text=f"{numbers.counted(case.fetches, 'copy')} to the host every step, and "
        f"{percent(lost_by(waits) / case.gpu.span_ns)} of "
        f"the time the GPU is idle because the host waited for them first{_named(waits)}",
        change="give per-batch callbacks `async_safe = True` (keras's `_supports_tf_logs`) or move them to "
        "on_epoch_end; no .numpy(), float(loss) or print in the loop; fetch the loss every hundredth step",
        evidence={"d2h_copies_per_step": case.fetches, "idle_sync_ns": case.ns("idle_sync"), "waits": waits[:3]},
        refuted_by="without the callbacks the GPU is idle after these waits for as long",
    )


def host_synchronises(case: Case) -> Finding | None:
    """A finding on waits of the host for the GPU. Waits for a loss that is fetched every step and waits for synchronous
    copies to the GPU have findings of their own and are left out."""
    waits = host_idle.waits_for(case, *({None, "d2h", "h2d", "d2d", "p2p"} - host_idle.waits_told(case)))
    share = lost_by(waits) / case.gpu.span_ns
    if not case.trains or share < OTHER_LADDER[1]:
        return None
    seldom = host_idle.copies_seldom(case, waits[0])
    return case.finding(
        "host-synchronises",
        host_idle.idle_ns(case, waits),
        text=f"{degree(share, OTHER_LADDER)} bound by a host that waits: {percent(share)} of the time the GPU is idle "
        f"after the host waited for it{_named(waits)}" + (", not in every step" if seldom else ""),
        change="copy to the host less often (checkpoints, get_weights in a callback), or from another thread while the "
        "next step runs"
        if seldom
        else "launch the next step before the last one is done: no sync_devices, .numpy() or blocking wait "
        "in every step; if a feed waits for free buffers, give it more buffers or make batches faster",
        evidence={"idle_sync_ns": case.ns("idle_sync"), "waits": waits[:3]},
        refuted_by="the GPU is idle for as long without the waiting call",
    )


def _named(waits: Sequence[Mapping[str, Any]]) -> str:
    """The host's longest waiting call, in brackets; "" if no call is known."""
    return f" ({called(waits[0])})" if waits and waits[0]["call"] else ""


def python_in_the_loop(case: Case) -> Finding | None:
    """A finding on launch idle while the host runs code outside of CUDA calls. The idle time includes sync idle that
    would remain if the host did not wait for the GPU."""
    if not case.trains:
        return None
    # This sum leaves out start-up and allocation, since both are CUDA calls.
    explained = host_idle.held_launch_ns(case) + host_idle.negotiation_ns(case) + host_idle.caught_up_ns(case)
    explained += case.gpu.waited_ns or 0
    outside = max(0, min((case.gpu.outside_calls_ns or 0) - explained, host_idle.late_launch_ns(case)))
    own = host_idle.own_after_waits_ns(case)
    share = (outside + own) / case.gpu.span_ns
    if share < OTHER_LADDER[1]:
        return None
    return case.finding(
        "python-in-the-loop",
        {"idle_launch": outside, "idle_sync": own},
        text=f"{degree(share, OTHER_LADDER)} launch-bound: {percent(share)} of the time the GPU waits for a launch "
        "while the host is in no CUDA call"
        # A program without a framework may sleep: three that show 25 frames/s were on a CPU a quarter of the time.
        + (
            ": it computes, or waits for a clock, a file or another thread"
            if case.gpu.framework in PLAIN
            else ", but in Python or the framework's executor"
        )
        + (f", {percent(own / case.gpu.span_ns)} after a wait for the GPU" if own else ""),
        change="steps_per_execution=8, tf.function around the whole step, no Python callbacks per batch",
        evidence={"idle_outside_calls_ns": outside, "host_while_idle": case.gpu.host_while_idle[:3]}
        | ({"own_after_wait_ns": own} if own else {}),
        refuted_by="the GPU is idle for as long with a higher steps_per_execution",
    )


def allocates_all_along(case: Case) -> Finding | None:
    """A finding on a loop that allocates and frees memory by driver calls in every step; freeing waits for the GPU."""
    waiting = sum(host_idle.allocating_ns(case).values())
    calls = [e["name"] for e in case.gpu.host_while_idle if re.search("Malloc|Alloc|Free", e["name"])]
    if not waiting:
        return None
    return case.finding(
        "memory-allocated-in-the-loop",
        host_idle.allocating_ns(case),
        text=f"{percent(waiting / case.gpu.span_ns)} of the time the GPU waits while the host allocates and frees its "
        f"memory{f' ({calls[0]})' if calls else ''}",
        change="keep and reuse memory: no TF_GPU_ALLOCATOR that returns it to the driver, and buffers allocated once",
        evidence={"idle_in_allocation_ns": waiting, "calls": calls},
        refuted_by="the GPU waits for as long with a pool of memory",
    )


def managed_memory_moves(case: Case) -> Finding | None:
    """A finding on managed memory whose pages move when the host or a kernel touches them.

    A kernel stands still until its pages arrive, so page moves during kernels are counted as possible kernel time. The
    GPU idles while the host touches one page after another.
    """
    if not case.managed:
        return None
    copies = {name: case.gpu.copies[name] for name in case.managed}
    exposed = {name: case.ns(name) for name in copies}
    idle = {name: one.managed_idle_ns or 0 for name, one in copies.items()}
    under_kernels = sum((one.busy_ns or 0) - (one.exposed_ns or 0) for one in copies.values())
    back = exposed.get("d2h", 0) + idle.get("d2h", 0)
    waiting = f"for {percent(under_kernels / case.gpu.span_ns)}"
    by_host = 2 * back > sum(exposed.values()) + sum(idle.values()) + under_kernels
    return case.finding(
        "managed-memory-moves",
        {**exposed, "compute": under_kernels, "idle_unknown": sum(idle.values())},
        busy_saved_ns={"compute": under_kernels},
        text=f"{numbers.size(sum(one.bytes or 0 for one in copies.values()))} of managed memory move when the host or "
        f"a kernel touches them: {percent((sum(exposed.values()) + sum(idle.values())) / case.gpu.span_ns)} of the "
        "time nothing computes meanwhile"
        + (f", {percent(back / case.gpu.span_ns)} while the host touches pages that are on the GPU" if by_host else "")
        + (f", and {waiting} kernels run that may be waiting for pages" if under_kernels else ""),
        change=(cuda_hip.HIP if case.gpu.framework == "hip" else cuda_hip.CUDA).managed(by_host=by_host),
        evidence={
            "exposed_ns": sum(exposed.values()),
            "under_kernels_ns": under_kernels,
            "managed_idle_ns": sum(idle.values()),
        },
        refuted_by="kernels take as long with all their pages prefetched"
        if not by_host
        else "the host waits just as long with its pages prefetched",
    )


_FOR = {
    "event": "an event",
    "stream": "another stream",
    "process": "another process",
    "host": "a function of the host",
    "graphics": "graphics",
    "peer": "a peer",
}
_ANY = ("event", "stream", "peer")
_UNSEEN = "something that the recording does not show, with one stream and no wait for an event"
_SEE = (
    "see in the timeline (--html, --perfetto) what ends when a wait does: a copy or a collective on another "
    "stream, another process's work"
)
_SEE_GRAPHICS = (
    "map a buffer that is not being drawn (use two buffers in turn), and record graphics calls, too "
    "(-t cuda,opengl,vulkan)"
)
_LOOK = "see what else runs on the GPU (nvidia-smi, rocm-smi; nsys --gpuctxsw=true records which process has the GPU)"
_MANAGED = "try cudaMalloc and copies instead of managed memory, whose pages the driver may move before each launch; "
_OF_GRAPHS = (
    "make graphs once and upload them before their launch (cudaGraphUpload, a warm-up replay), and do not change them "
    "in every step; if these waits stay, the profiler left nodes out: compare with nsys --cuda-graph-trace=node"
)


def _before_graphs(case: Case) -> bool:
    """True if at least half of the time that launched work waits, counted over the longest gaps, ends with a CUDA
    graph."""
    waits = [(gap.causes_ns.get("idle_wait", 0), "GraphLaunch" in (gap.call or "")) for gap in case.gpu.idle_gaps]
    return 2 * sum(ns for ns, graph in waits if graph) >= sum(ns for ns, _ in waits) > 0


def _held_by(case: Case) -> tuple[str, str]:
    """(what launched work may be waiting for, remedy), both as text for a finding."""
    known = case.gpu.waits_on
    shown = list(_ANY) if known is None else [name for name in _FOR if name in known]
    shown += ["peer"] * (known is not None and case.gpu.collectives.count > 0)
    if not shown:
        return _UNSEEN, (_MANAGED if "managed" in (known or ()) else "") + _LOOK
    words = [_FOR[name] for name in shown]
    see = _SEE_GRAPHICS if shown == ["graphics"] else _SEE
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]])), see


def work_waits(case: Case) -> Finding | None:
    """A finding on work that was launched in time but does not start, since it waits for other work or an event."""
    held = host_idle.held_after_wait_ns(case)
    waiting = case.ns("idle_wait") - host_idle.synchronous_copies_ns(case, "idle_wait")
    share = (waiting + held) / case.gpu.span_ns
    if not case.trains or share < OTHER_LADDER[1]:
        return None
    graphs = _before_graphs(case)
    what, see = _held_by(case)
    finding = case.finding(
        "launched-work-waits",
        {"idle_wait": waiting, "idle_sync": held},
        text=f"{percent(share)} of the time the GPU idles although work was launched: it waits for "
        + ("work at the start of a CUDA graph that the profiler did not record" if graphs else what)
        + (", or for the profiler" if case.recorded.startswith("nvprof") else ""),
        change=(_OF_GRAPHS if graphs else see)
        + (". nvprof itself causes waits like these: compare with nsys" if case.recorded.startswith("nvprof") else ""),
        evidence={"idle_wait_ns": case.ns("idle_wait"), "launch_latency_ns": case.gpu.kernels.launch_latency_ns or {}},
        refuted_by="with one CUDA stream launched work waits for as long",
    )
    # nvprof itself causes some of these waits, so the gain is not known.
    return replace(finding, at_most_gain=None) if finding and case.recorded.startswith("nvprof") else finding


def training_paused(case: Case) -> Finding | None:
    """A finding on pauses of an elastic training in which a rank was lost or hosts came or went. Short pauses are
    reported, too."""
    pauses = case.gpu.pauses
    if not pauses:
        return None
    lengths = [pause.end_ns - pause.start_ns for pause in pauses]
    whys = list(dict.fromkeys(pause.why for pause in pauses))
    often = "" if len(pauses) == 1 else f" {len(pauses)} times, in all"
    return case.finding(
        "training-paused",
        {"idle_pause": case.ns("idle_pause")},
        text=f"{'; '.join(whys)}: the training paused{often} for {numbers.duration(sum(lengths))}",
        change="find out why: the launcher's last lines on that rank, dmesg (out of memory), the scheduler's log; with "
        "a lower commit_steps fewer steps are repeated after a pause",
        evidence={"pauses": len(pauses), "longest_pause_ns": max(lengths), "idle_pause_ns": case.ns("idle_pause")},
        refuted_by="ring's own line on that rank gives another reason",
        least_share=0.0,
    )


RULES = (
    training_paused,
    loss_fetched,
    host_synchronises,
    python_in_the_loop,
    allocates_all_along,
    managed_memory_moves,
    work_waits,
)
