"""Verdicts on how a batch reaches the GPU."""

from __future__ import annotations

import re

from .. import numbers
from ..ledger.causes import WAITING_FOR_INPUT
from ..measures import Finding
from ..numbers import share as percent
from .case import INPUT_LADDER, PLAIN, Case, degree

HOST_FED = ("numpy", "host")
PREFETCHED_ON_HOST = ("prefetch",)
# Copies that are hidden for less than this were asked for by the step that needs them.
LATE_OVERLAP = 0.5
# Where nothing shows that the host waits for its input, so much a step is what Python takes to begin one.
BEGINS_NS = 1_000_000
UINT8_SAVES = 0.75  # of float32's bytes
FEWER_BYTES = "fewer bytes: images as uint8, other features as float16"
AS_BYTES = (
    "uint8, scaled in the model: keras.layers.Rescaling(1/127.5, offset=-1) as its first layer (ringscope bench "
    "--input-dtype uint8)"
)
EXAMPLE_PINNED = "55 GB/s on an H200"


def _exposed_inputs(case: Case) -> int:
    inputs = case.gpu.input_copies
    return int(inputs["exposed_ns"] or 0) if inputs else case.ns("h2d")


def _overlap(case: Case) -> float | None:
    inputs = case.gpu.input_copies
    value = inputs["overlap"] if inputs else case.gpu.copies["h2d"].overlap
    return None if value is None else float(value)


def _asked_late(case: Case) -> bool:
    """Are the batches copied when the step that needs them is due, not ahead of it? Only a feed that copies ahead, and
    was late, has `batch N` ranges."""
    if (case.gpu.input_copies or {}).get("marked"):
        return False
    overlap = _overlap(case)
    fed = case.gpu.feed_gaps
    late_gaps = bool(fed and case.gpu.steps.count and fed.count * 2 >= case.gpu.steps.count)
    return overlap is not None and overlap < LATE_OVERLAP and late_gaps


def _pageable(case: Case) -> bool:
    return (case.gpu.copies["h2d"].pageable_share or 0.0) >= 0.5


def _shorter_copies(case: Case, by: float) -> dict[str, int]:
    """What the copies' own time shrinks by. Pinned memory is so much faster that all of it is taken to go."""
    return {"h2d": int((case.gpu.copies["h2d"].busy_ns or 0) * by)}


def input_pipeline_slow(case: Case) -> Finding | None:
    """The GPU waits for data: tf.data makes batches more slowly than the GPU uses them."""
    feed_ns, waited_ns, share = case.ns("idle_feed"), case.gpu.waited_ns or 0, case.input_share
    if share < INPUT_LADDER[1] or (not _seen_waiting(case) and feed_ns < BEGINS_NS * case.steps):
        return None
    return case.finding(
        "input-pipeline-slow",
        {"idle_feed": feed_ns, "idle_launch": waited_ns},
        text=f"{degree(share, INPUT_LADDER)} input-bound: {percent(share)} of the time the GPU waits for "
        + ("an input" if case.gpu.framework in PLAIN else "a batch"),
        change="dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE), .cache() after decoding, .batch before .map "
        f"where it vectorises, {'smaller images in the files, ' if case.convolves else ''}more cores a rank",
        evidence={"idle_feed_ns": feed_ns, "idle_launch_while_waiting_ns": waited_ns},
        refuted_by="one batch again and again (feed `resident`) with the same step time",
    )


def _seen_waiting(case: Case) -> bool:
    """Does the recording have ranges in which the host waits for its input?"""
    ranges = [str(entry["name"]) for entry in case.gpu.host_while_idle if entry["kind"] == "range"]
    return any(re.search(WAITING_FOR_INPUT, name) for name in ranges)


def no_prefetch(case: Case) -> Finding | None:
    """Each batch is made while the step waits for it."""
    known = case.cell is not None and case.cell.feed in HOST_FED
    if case.cell is not None and not known:
        return None
    if not known and not (_asked_late(case) and case.share("idle_feed") >= INPUT_LADDER[0]):
        return None
    if not known and case.gpu.framework == "pytorch":  # a DataLoader's workers prefetch: the pipeline is slow
        return None
    said = "nothing is prefetched" if known else "batches are asked for when they are due, or made too slowly"
    return case.finding(
        "no-prefetch",
        {"idle_feed": case.ns("idle_feed"), "h2d": _exposed_inputs(case)},
        busy_saved_ns=_shorter_copies(case, 1.0 if _pageable(case) else 0.0),
        text=f"{said}: {percent(case.share('idle_feed'))} of the time the GPU waits for its batch and "
        f"{percent(_exposed_inputs(case) / case.gpu.span_ns)} for the copy of it",
        change="dataset.prefetch(tf.data.AUTOTUNE), then prefetch to the device (ringscope bench --feeds pinned)",
        evidence={"feed_gaps": case.gpu.feed_gaps and case.gpu.feed_gaps.p50_ns, "overlap": _overlap(case)},
        refuted_by="a prefetched run with the same feed gaps",
    )


def prefetch_on_host_only(case: Case) -> Finding | None:
    """The batch is ready in host memory, and copied only when the step that needs it is due."""
    known = case.cell is not None and case.cell.feed in PREFETCHED_ON_HOST
    if case.cell is not None and not known:
        return None
    if not known and not (_asked_late(case) and case.share("idle_feed") < INPUT_LADDER[0]):
        return None
    overlap = _overlap(case)
    return case.finding(
        "prefetch-on-host-only",
        {"idle_feed": case.ns("idle_feed"), "h2d": _exposed_inputs(case)},
        busy_saved_ns=_shorter_copies(case, 1.0 if _pageable(case) else 0.0),
        text="batches are copied when the step that needs them is due: "
        f"{percent(overlap or 0.0)} of the copies is hidden, {percent(_exposed_inputs(case) / case.gpu.span_ns)} of "
        f"the time is exposed copy and {percent(case.share('idle_feed'))} waiting to begin it",
        change='dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2)) as the last transformation '
        "(ringscope bench --feeds device), or pinned staging buffers (--feeds pinned)",
        evidence={"overlap": overlap, "exposed_input_copy_ns": _exposed_inputs(case)},
        refuted_by="prefetch_to_device with the copies still exposed",
    )


def copies_pageable(case: Case) -> Finding | None:
    """Batches leave pageable memory, which the driver has to stage: slow, and in the way of launches.

    While the call of such a copy lasts, the thread that would launch the next step waits for the driver: launch idle
    of the batch gaps goes with the copies, for as long as the calls last beyond the exposed copies themselves. What a
    small copy explains is another finding's.
    """
    h2d = case.gpu.copies["h2d"]
    if not _pageable(case) or not h2d.gb_per_s:
        return None
    exposed = _exposed_inputs(case)
    in_gaps = (case.gpu.batch_gap_ledger_ns or {}).get("idle_launch", 0) - case.held_launch_ns
    in_calls = int((case.gpu.input_copies or {}).get("call_ns") or 0) - exposed
    held_up = max(0, min(in_gaps, in_calls))
    return case.finding(
        "copies-pageable",
        {"h2d": exposed, "idle_launch": held_up},
        busy_saved_ns=_shorter_copies(case, 1.0),
        text=f"{percent(h2d.pageable_share or 0.0)} of the bytes leave pageable memory, at "
        f"{numbers.gb_per_s(h2d.gb_per_s)}, where pinned memory gives what the link does ({EXAMPLE_PINNED}); "
        f"{percent(exposed / case.gpu.span_ns)} of the time is exposed copy",
        change="stage batches in pinned memory: ringscope bench --feeds pinned (model.fit after "
        "ring.distribute(model) does it for any data)",
        evidence={
            "gb_per_s": h2d.gb_per_s,
            "pageable_share": h2d.pageable_share,
            "exposed_input_copy_ns": exposed,
            "idle_launch_held_up_ns": held_up,
        },
        refuted_by="a recording with src_kind pinned at the same rate",
    )


def copies_synchronous(case: Case) -> Finding | None:
    """Copies made by calls that return only when the copy is done. What idles after them in a capture that hardly
    computes may as well be the program's start."""
    h2d = case.gpu.copies["h2d"]
    if not h2d.synchronous or not h2d.count or h2d.under_64kib == h2d.count or h2d.synchronous < h2d.count / 2:
        return None
    return case.finding(
        "copies-synchronous",
        {"h2d": case.ns("h2d")} | ({"idle_sync": case.ns("idle_sync")} if case.trains else {}),
        text=f"{numbers.count(h2d.synchronous)} of {numbers.count(h2d.count)} copies to the GPU are synchronous calls: "
        "the host stands still",
        change="cudaMemcpyAsync on a stream of its own; from Keras, a tf.data pipeline with prefetch_to_device instead "
        "of NumPy arrays",
        evidence={"synchronous": h2d.synchronous, "count": h2d.count},
        refuted_by="asynchronous copies with as much exposed copy",
    )


def exposed_although_prefetched(case: Case) -> Finding | None:
    """A later step's batch is copied ahead, and yet nothing computes meanwhile."""
    inputs = case.gpu.input_copies
    exposed = int((inputs or {}).get("exposed_later_step_ns") or 0)
    h2d = case.gpu.copies["h2d"]
    if not _pageable(case):
        why, change = f"the link gives {numbers.gb_per_s(h2d.gb_per_s)}", FEWER_BYTES
    else:
        why = "while a copy from pageable memory runs, the next step's launches wait for the driver"
        change = f"pinned staging buffers (ringscope bench --feeds pinned); {FEWER_BYTES}"
    return case.finding(
        "copies-exposed-although-prefetched",
        {"h2d": exposed},
        busy_saved_ns=_shorter_copies(case, 1.0 if _pageable(case) else UINT8_SAVES),
        text=f"batches of later steps are copied ahead, yet {percent(exposed / case.gpu.span_ns)} of the time nothing "
        f"computes meanwhile: {why}",
        change=change,
        evidence={"exposed_later_step_ns": exposed, "overlap": (inputs or {}).get("overlap")},
        refuted_by="pinned copies that are as exposed",
    )


def copies_exposed(case: Case) -> Finding | None:
    """Copies to the GPU while nothing computes, where no other verdict says why."""
    h2d = case.gpu.copies["h2d"]
    share = case.share("h2d")
    told = case.share("idle_feed") >= INPUT_LADDER[1] or _pageable(case) or _asked_late(case) or "h2d" in case.managed
    later = int((case.gpu.input_copies or {}).get("exposed_later_step_ns") or 0)
    if told or share < INPUT_LADDER[1] or 2 * later > case.ns("h2d"):
        return None
    # Without steps a framework's copies may as well be the weights of a model that is being loaded.
    if case.gpu.window != "steps" and case.gpu.framework not in (*PLAIN, None):
        return None
    ahead = "copy ahead of the steps, on a stream of its own (ringscope bench --feeds pinned)"
    parts = [FEWER_BYTES, "keep on the GPU what every step needs again"]
    if case.cell is None or case.cell.feed != "pinned":
        parts.insert(0, ahead)
    return case.finding(
        "copies-exposed",
        {"h2d": case.ns("h2d")},
        busy_saved_ns=_shorter_copies(case, UINT8_SAVES),
        text=f"{degree(share, INPUT_LADDER)} bound by copies to the GPU: {percent(share)} of the time goes into them "
        "while nothing computes" + (f", at {numbers.gb_per_s(h2d.gb_per_s)}" if h2d.gb_per_s else ""),
        change="; ".join(parts),
        evidence={"exposed_ns": case.ns("h2d"), "bytes": h2d.bytes, "gb_per_s": h2d.gb_per_s, "overlap": h2d.overlap},
        refuted_by="one batch kept on the GPU (feed `resident`) with the same step time",
    )


def float32_input(case: Case) -> Finding | None:
    """Images that travel as float32 could travel as uint8, a quarter of the bytes; other features as float16."""
    inputs = case.gpu.input_copies
    if case.cell is None or case.cell.input_dtype != "float32" or not inputs:
        return None
    exposed, images = _exposed_inputs(case), case.convolves
    return case.finding(
        "float32-input",
        {"h2d": int(exposed * UINT8_SAVES)},
        busy_saved_ns={"h2d": int(int(inputs["busy_ns"] or 0) * UINT8_SAVES)},
        text=f"the input travels as float32: {numbers.size(int(inputs['bytes'] or 0) // case.steps)} per step, "
        f"{percent(exposed / case.gpu.span_ns)} of the time exposed copy"
        + ("; images are uint8 until they are scaled" if images else ""),
        change=f"images as {AS_BYTES}; other features as float16, half the bytes"
        if images
        else f"features as float16, half the bytes; what is stored as bytes as {AS_BYTES}",
        evidence={"bytes_per_step": int(inputs["bytes"] or 0) // case.steps, "exposed_input_copy_ns": exposed},
        refuted_by="uint8 input with as much exposed copy",
    )


def small_copy_before_step(case: Case) -> Finding | None:
    """Each step begins with a tiny copy to the GPU, and its kernels are launched only when the host knows it done.

    TensorFlow keeps int32 tensors on the host; a compiled step that takes one copies it on the compute stream, behind
    the step before, and launches nothing until then.
    """
    ns = case.held_launch_ns
    if not ns:
        return None
    held = case.gpu.held_launches or {}
    return case.finding(
        "small-copy-before-step",
        {"idle_launch": ns},
        text=f"each step begins with a copy of {numbers.size(held['bytes'])} that waits for the step before, and its "
        f"first launch for that copy: {percent(ns / case.gpu.span_ns)} of the time",
        change="TensorFlow keeps int32 tensors on the host. Labels as int64: dataset.map(lambda x, y: (x, tf.cast(y, "
        "tf.int64))); other small tensors into the batch that is copied ahead",
        evidence={
            "batch_gaps": held["gaps"],
            "with_a_small_copy": held["count"],
            "copy_bytes": held["bytes"],
            "idle_launch_after_it_ns": ns,
        },
        refuted_by="a recording with int64 labels with the same batch gaps",
    )


RULES = (
    input_pipeline_slow,
    no_prefetch,
    prefetch_on_host_only,
    copies_pageable,
    copies_synchronous,
    exposed_although_prefetched,
    copies_exposed,
    float32_input,
    small_copy_before_step,
)
