"""Findings on copies that compute does not hide: to the GPU, to the host, and within the GPU's memory."""

from __future__ import annotations

from ..ground import numbers
from ..ground.numbers import share as percent
from ..metrics.doubts import PLAIN
from ..model.findings import Finding
from . import host_idle
from .case import INPUT_LADDER, OTHER_LADDER, REPORT_SHARE, Case, degree
from .shared_advice import compiling

# If compute hides a smaller share of the copies, each batch was requested only by the step that needs it.
LATE_OVERLAP = 0.5
UINT8_SAVES = 0.75  # uint8 saves this share of float32's bytes
FEWER_BYTES = "send fewer bytes: images as uint8, other features as float16"
BY_RING = "model.fit does this for any data after ring.distribute(model)"
EXAMPLE_PINNED = "55 GB/s on an H200"


def exposed_inputs(case: Case) -> int:
    inputs = case.gpu.input_copies
    return int(inputs["exposed_ns"] or 0) if inputs else case.ns("h2d")


def overlap_of(case: Case) -> float | None:
    inputs = case.gpu.input_copies
    value = inputs["overlap"] if inputs else case.gpu.copies["h2d"].overlap
    return None if value is None else float(value)


def asked_late(case: Case) -> bool:
    """True if batches are copied only when their step is due. False if the recording has `batch N` ranges, since the
    feed that writes these ranges copies ahead and was merely late."""
    if (case.gpu.input_copies or {}).get("marked"):
        return False
    overlap = overlap_of(case)
    fed = case.gpu.feed_gaps
    late_gaps = bool(fed and case.gpu.steps.count and fed.count * 2 >= case.gpu.steps.count)
    return overlap is not None and overlap < LATE_OVERLAP and late_gaps


def pageable(case: Case) -> bool:
    return (case.gpu.copies["h2d"].pageable_share or 0.0) >= 0.5


def shorter_copies(case: Case, by: float) -> dict[str, int]:
    """{"h2d": ns saved} if copies to the GPU became shorter by the share `by`. `by` is 1 for copies from pinned memory,
    which cannot become faster."""
    return {"h2d": int((case.gpu.copies["h2d"].busy_ns or 0) * by)}


def copies_pageable(case: Case) -> Finding | None:
    """A finding on batches in pageable memory, which the driver must stage: slow, and it delays launches.

    During the call of such a copy the thread cannot launch the next step. So the finding also counts launch idle in the
    batch gaps, up to the time of the calls less that of the exposed copies. It leaves out launch idle that
    `small-copy-before-step` explains.
    """
    h2d = case.gpu.copies["h2d"]
    if not pageable(case) or not h2d.gb_per_s:
        return None
    exposed = exposed_inputs(case)
    in_gaps = (case.gpu.batch_gap_ledger_ns or {}).get("idle_launch", 0) - host_idle.held_launch_ns(case)
    in_calls = int((case.gpu.input_copies or {}).get("call_ns") or 0) - exposed
    held_up = max(0, min(in_gaps, in_calls))
    return case.finding(
        "copies-pageable",
        {"h2d": exposed, "idle_launch": held_up},
        busy_saved_ns=shorter_copies(case, 1.0),
        text=f"{percent(h2d.pageable_share or 0.0)} of the bytes leave pageable memory, at "
        f"{numbers.gb_per_s(h2d.gb_per_s)}, where pinned memory reaches the link's own speed ({EXAMPLE_PINNED}); "
        f"{percent(exposed / case.gpu.span_ns)} of the time is exposed copy",
        change="stage batches in pinned memory: " + case.told(bench="ringscope bench --feeds pinned", script=BY_RING),
        evidence={
            "gb_per_s": h2d.gb_per_s,
            "pageable_share": h2d.pageable_share,
            "exposed_input_copy_ns": exposed,
            "idle_launch_held_up_ns": held_up,
        },
        refuted_by="copies from pinned memory run at the same rate",
    )


def copies_synchronous(case: Case) -> Finding | None:
    """A finding on copies to the GPU by calls that return only when the copy is done. Idle time after them counts only
    in a training, since elsewhere it may be the program's start."""
    h2d = case.gpu.copies["h2d"]
    if not case.copies_wait or "h2d" in case.offloaded:
        return None
    waited = host_idle.idle_ns(case, host_idle.waits_for(case, "h2d")) if case.trains else {}
    for owner in ("idle_launch", "idle_wait"):
        waited[owner] = min(waited.get(owner, 0) + host_idle.synchronous_copies_ns(case, owner), case.ns(owner))
    idle = sum(waited.values()) / case.gpu.span_ns
    return case.finding(
        "copies-synchronous",
        {"h2d": case.ns("h2d")} | waited,
        text=f"{numbers.count(h2d.synchronous)} of {numbers.count(h2d.count)} copies to the GPU are synchronous calls: "
        "the host stands still"
        + (f", and {percent(idle)} of the time the GPU idles for them" if idle >= REPORT_SHARE else ""),
        change="cudaMemcpyAsync on a separate stream; from Keras, a tf.data pipeline with prefetch_to_device instead "
        "of NumPy arrays",
        evidence={"synchronous": h2d.synchronous, "count": h2d.count},
        refuted_by="asynchronous copies are exposed for as long",
    )


def exposed_although_prefetched(case: Case) -> Finding | None:
    """A finding on batches that are copied ahead of their step, but at a time when nothing computes."""
    inputs = case.gpu.input_copies
    exposed = int((inputs or {}).get("exposed_later_step_ns") or 0)
    h2d = case.gpu.copies["h2d"]
    if not pageable(case):
        why, change = f"the link gives {numbers.gb_per_s(h2d.gb_per_s)}", FEWER_BYTES
    else:
        why = "while a copy from pageable memory runs, the next step's launches wait for the driver"
        staged = case.told(bench="ringscope bench --feeds pinned", script=BY_RING)
        change = f"pinned staging buffers ({staged}); {FEWER_BYTES}"
    return case.finding(
        "copies-exposed-although-prefetched",
        {"h2d": exposed},
        busy_saved_ns=shorter_copies(case, 1.0 if pageable(case) else UINT8_SAVES),
        text=f"batches of later steps are copied ahead, yet {percent(exposed / case.gpu.span_ns)} of the time nothing "
        f"computes while they are copied: {why}",
        change=change,
        evidence={"exposed_later_step_ns": exposed, "overlap": (inputs or {}).get("overlap")},
        refuted_by="from pinned memory the copies are exposed for as long",
    )


def copies_exposed(case: Case) -> Finding | None:
    """A finding on copies to the GPU while nothing computes, unless a more specific finding covers them."""
    h2d = case.gpu.copies["h2d"]
    share = case.share("h2d")
    told = pageable(case) or asked_late(case) or "h2d" in (*case.managed, *case.offloaded)
    later = int((case.gpu.input_copies or {}).get("exposed_later_step_ns") or 0)
    if told or share < INPUT_LADDER[1] or 2 * later > case.ns("h2d"):
        return None
    unstepped = case.gpu.window != "steps" and case.gpu.framework not in (*PLAIN, None)
    staged = case.told(bench="ringscope bench --feeds pinned", script=BY_RING)
    ahead = f"copy ahead of the steps, on a separate stream ({staged})"
    parts = [FEWER_BYTES, "keep data that every step needs on the GPU"]
    if case.cell is None or case.cell.feed != "pinned":
        parts.insert(0, ahead)
    return case.finding(
        "copies-exposed",
        {"h2d": case.ns("h2d")},
        busy_saved_ns=shorter_copies(case, UINT8_SAVES),
        text=f"{degree(share, INPUT_LADDER)} bound by copies to the GPU: {percent(share)} of the time goes into them "
        "while nothing computes"
        + (f", at {numbers.gb_per_s(h2d.gb_per_s)}" if h2d.gb_per_s else "")
        + ("; no steps were found, so these may be a model's weights, loaded once" if unstepped else ""),
        change="; ".join(parts),
        evidence={"exposed_ns": case.ns("h2d"), "bytes": h2d.bytes, "gb_per_s": h2d.gb_per_s, "overlap": h2d.overlap},
        refuted_by="a step takes as long with one batch kept on the GPU (feed `resident`)",
    )


def copies_to_host(case: Case) -> Finding | None:
    """A finding on copies to the host (results, a checkpoint) while nothing computes, unless they are offloaded
    tensors or managed memory."""
    d2h, share = case.gpu.copies["d2h"], case.share("d2h")
    if "d2h" in (*case.managed, *case.offloaded) or share < OTHER_LADDER[1]:
        return None
    return case.finding(
        "copies-to-host-exposed",
        {"d2h": case.ns("d2h")},
        text=f"{degree(share, OTHER_LADDER)} bound by copies to the host: {percent(share)} of the time goes into them "
        "while nothing computes" + (f", at {numbers.gb_per_s(d2h.gb_per_s)}" if d2h.gb_per_s else ""),
        change="copy fewer bytes, less often: compute sums and metrics on the GPU and fetch them in on_epoch_end; "
        "fetch the rest into pinned memory, while the next step runs",
        evidence={"exposed_ns": case.ns("d2h"), "bytes": d2h.bytes, "gb_per_s": d2h.gb_per_s, "overlap": d2h.overlap},
        refuted_by="a step takes as long without these copies",
    )


def offloaded(case: Case) -> Finding | None:
    """A finding on weights, optimizer states or activations that are copied to the host and back in each step."""
    if not case.offloaded:
        return None
    ways = {name: case.gpu.copies[name].returned for name in case.offloaded}
    saved = {name: one.exposed_ns for name, one in ways.items() if one}
    h2d = case.gpu.copies["h2d"].returned
    idle = h2d.idle_ns if h2d else {}
    copied, waited = (sum(each.values()) / case.gpu.span_ns for each in (saved, idle))
    moved = h2d.bytes if h2d else 0
    return case.finding(
        "offloaded-to-host",
        {**saved, **idle},
        busy_saved_ns={name: case.gpu.copies[name].busy_ns or 0 for name in ways},
        text=f"{numbers.size(moved // case.steps)} {case.each} go to the host and come back (weights, optimizer "
        f"states or activations): {percent(copied)} of the time they are copied while nothing computes"
        + (f", and {percent(waited)} the GPU idles until they come" if waited >= REPORT_SHARE else ""),
        change="keep them on the GPU where memory allows: recompute activations instead, a smaller batch, an optimizer "
        "with 8-bit states, a model in shards over more GPUs; else "
        + ("pinned memory, and " if pageable(case) else "")
        + "copies on a stream of their own while other layers compute",
        evidence={
            "returned_bytes": moved,
            "exposed_ns": sum(saved.values()),
            "idle_until_back_ns": sum(idle.values()),
        },
        refuted_by="a step takes as long with all of it on the GPU",
    )


def copies_on_gpu(case: Case) -> Finding | None:
    """A finding on copies within the GPU's memory while nothing computes."""
    d2d, share = case.gpu.copies["d2d"], case.share("d2d")
    if share < OTHER_LADDER[1]:
        return None
    return case.finding(
        "copies-on-gpu-exposed",
        {"d2d": case.ns("d2d")},
        text=f"{degree(share, OTHER_LADDER)} bound by copies on the GPU: {percent(share)} of the time the GPU moves "
        f"{numbers.size((d2d.bytes or 0) // case.steps)} {case.each} from one place in its memory to another, and "
        "computes nothing",
        change="leave tensors where they are: no copies of whole tensors (tf.identity, concatenation, transposed "
        f"layouts) in the step{'' if case.compiled else f'; compile it ({compiling(case)})'}",
        evidence={"exposed_ns": case.ns("d2d"), "bytes": d2d.bytes, "gb_per_s": d2d.gb_per_s, "overlap": d2d.overlap},
        refuted_by="a step takes as long without these copies",
    )


RULES = (
    copies_pageable,
    copies_synchronous,
    exposed_although_prefetched,
    copies_exposed,
    copies_to_host,
    offloaded,
    copies_on_gpu,
)
