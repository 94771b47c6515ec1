"""Findings on the input pipeline and on how batches reach the GPU."""

from __future__ import annotations

import re

from ..ground import numbers
from ..ground.numbers import share as percent
from ..ledger.causes import WAITING_FOR_INPUT
from ..metrics.doubts import PLAIN
from ..model.findings import Finding
from . import host_idle
from .case import INPUT_LADDER, Case, degree
from .copies import BY_RING, UINT8_SAVES, asked_late, exposed_inputs, overlap_of, pageable, shorter_copies
from .gpu_facts import convolves
from .shared_advice import DATA_LOADER, PY_DATASET

HOST_FED = ("numpy", "host")
PREFETCHED_ON_HOST = ("prefetch",)
# Python may need this much feed idle (ns) to begin a step. If no range shows a wait for input, only longer feed idle
# counts.
BEGINS_NS = 1_000_000
AS_BYTES = (
    "uint8, scaled in the model: keras.layers.Rescaling(1/127.5, offset=-1) as its first layer (ringscope bench "
    "--input-dtype uint8)"
)


def input_pipeline_slow(case: Case) -> Finding | None:
    """A finding on time in which the GPU waits for its next batch, since the loader is slower than the GPU."""
    feed_ns, waited_ns, share = case.ns("idle_feed"), case.gpu.waited_ns or 0, case.input_share
    if share < INPUT_LADDER[1] or (not _seen_waiting(case) and feed_ns < BEGINS_NS * case.steps):
        return None
    return case.finding(
        "input-pipeline-slow",
        {"idle_feed": feed_ns, "idle_launch": waited_ns},
        text=f"{degree(share, INPUT_LADDER)} input-bound: {percent(share)} of the time the GPU waits for "
        + ("an input" if case.gpu.framework in PLAIN else "a batch"),
        change=_faster_batches(case),
        evidence={"idle_feed_ns": feed_ns, "idle_launch_while_waiting_ns": waited_ns},
        refuted_by="a step takes as long with one batch used again and again (feed `resident`)",
    )


def _other_loader(case: Case) -> bool:
    """True if a script's batches are known to come from something other than tf.data."""
    return case.cell is None and case.gpu.loader not in (None, "tf.data")


def _faster_batches(case: Case) -> str:
    """Advice for the loader that makes the batches; if it is not known, for all that Keras's `fit` accepts."""
    images = "smaller images in the files, " if convolves(case.gpu) else ""
    pipeline = (
        "dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE), .cache() after decoding, .batch before .map if the "
        f"map takes whole batches, {images}more cores per rank"
    )
    if case.cell is not None or case.gpu.loader == "tf.data":
        return pipeline
    return {
        "PyDataset": PY_DATASET,
        "generator": f"a generator makes one batch at a time: use a keras.utils.PyDataset instead, with {PY_DATASET}",
        "arrays": "put arrays in memory into one tf.data.Dataset.from_tensor_slices, shuffled by index, with prefetch",
        "DataLoader": DATA_LOADER,
        "Grain": "grain's mp_prefetch with the cores of a rank as worker processes",
    }.get(case.gpu.loader or "", f"for tf.data: {pipeline}; for a PyDataset: {PY_DATASET}")


def _seen_waiting(case: Case) -> bool:
    """True if the recording has ranges in which the host waits for its input."""
    ranges = [str(entry["name"]) for entry in case.gpu.host_while_idle if entry["kind"] == "range"]
    return any(re.search(WAITING_FOR_INPUT, name) for name in ranges)


def no_prefetch(case: Case) -> Finding | None:
    """A finding on batches that the loader begins to make only when their step already waits for them."""
    known = case.cell is not None and case.cell.feed in HOST_FED
    if case.cell is not None and not known:
        return None
    if not known and not (asked_late(case) and case.share("idle_feed") >= INPUT_LADDER[0]):
        return None
    if not known and case.gpu.framework == "pytorch":
        return None  # The workers of a DataLoader prefetch, so a late batch shows a slow pipeline.
    said = "nothing is prefetched" if known else "batches are requested only when a step needs them, or made too slowly"
    return case.finding(
        "no-prefetch",
        {"idle_feed": case.ns("idle_feed"), "h2d": exposed_inputs(case)},
        busy_saved_ns=shorter_copies(case, 1.0 if pageable(case) else 0.0),
        text=f"{said}: {percent(case.share('idle_feed'))} of the time the GPU waits for its batch and "
        f"{percent(exposed_inputs(case) / case.gpu.span_ns)} for the copy of it",
        change=f"copies ahead of the steps: {BY_RING}"
        if _other_loader(case)
        else "dataset.prefetch(tf.data.AUTOTUNE), then "
        + case.told(
            bench="prefetch to the device (ringscope bench --feeds pinned)",
            script=f"copies ahead of the steps: {BY_RING}",
        ),
        evidence={"feed_gaps": case.gpu.feed_gaps and case.gpu.feed_gaps.p50_ns, "overlap": overlap_of(case)},
        refuted_by="the feed gaps are as long with prefetching",
    )


def prefetch_on_host_only(case: Case) -> Finding | None:
    """A finding on batches that wait in host memory and are copied only when their step is due."""
    known = case.cell is not None and case.cell.feed in PREFETCHED_ON_HOST
    if case.cell is not None and not known:
        return None
    if not known and not (asked_late(case) and case.share("idle_feed") < INPUT_LADDER[0]):
        return None
    overlap = overlap_of(case)
    return case.finding(
        "prefetch-on-host-only",
        {"idle_feed": case.ns("idle_feed"), "h2d": exposed_inputs(case)},
        busy_saved_ns=shorter_copies(case, 1.0 if pageable(case) else 0.0),
        text=f"batches are copied only when their own step begins: {percent(overlap or 0.0)} of the copies' time is "
        f"hidden. Nothing computes during exposed copies ({percent(exposed_inputs(case) / case.gpu.span_ns)} of the "
        f"time) and during the wait before them ({percent(case.share('idle_feed'))})",
        change=f"pinned staging buffers: {BY_RING}"
        if _other_loader(case)
        else 'dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2)) as the last transformation'
        + case.told(
            bench=" (ringscope bench --feeds device), or pinned staging buffers (--feeds pinned)",
            script=f", or pinned staging buffers: {BY_RING}",
        ),
        evidence={"overlap": overlap, "exposed_input_copy_ns": exposed_inputs(case)},
        refuted_by="the copies stay exposed with prefetch_to_device",
    )


def float32_input(case: Case) -> Finding | None:
    """A finding on input that is copied as float32: uint8 for images has a quarter of the bytes, float16 half."""
    inputs = case.gpu.input_copies
    if case.cell is None or case.cell.input_dtype != "float32" or not inputs:
        return None
    exposed, images = exposed_inputs(case), convolves(case.gpu)
    return case.finding(
        "float32-input",
        {"h2d": int(exposed * UINT8_SAVES)},
        busy_saved_ns={"h2d": int(int(inputs["busy_ns"] or 0) * UINT8_SAVES)},
        text=f"the input travels as float32: {numbers.size(int(inputs['bytes'] or 0) // case.steps)} per step, "
        f"{percent(exposed / case.gpu.span_ns)} of the time exposed copy"
        + ("; images are uint8 until they are scaled" if images else ""),
        change=f"images as {AS_BYTES}; other features as float16, half the bytes"
        if images
        else f"features as float16, half the bytes; bytes as {AS_BYTES}",
        evidence={"bytes_per_step": int(inputs["bytes"] or 0) // case.steps, "exposed_input_copy_ns": exposed},
        refuted_by="copies of uint8 input are exposed for as long",
    )


def small_copy_before_step(case: Case) -> Finding | None:
    """A finding on steps that begin with a tiny copy to the GPU and launch no kernel until that copy is done.

    TensorFlow keeps int32 tensors on the host. A compiled step with an int32 input copies it on the compute stream, so
    that the copy waits for the previous step, and the launches wait for the copy.
    """
    ns = host_idle.held_launch_ns(case)
    if not ns:
        return None
    held = case.gpu.held_launches or {}
    return case.finding(
        "small-copy-before-step",
        {"idle_launch": ns},
        text=f"each step begins with a copy of {numbers.size(held['bytes'])} that waits for the step before, and the "
        f"step's first launch waits for that copy: {percent(ns / case.gpu.span_ns)} of the time",
        change="TensorFlow keeps int32 tensors on the host. Labels as int64: dataset.map(lambda x, y: (x, tf.cast(y, "
        "tf.int64))); other small tensors into the batch that is copied ahead",
        evidence={
            "batch_gaps": held["gaps"],
            "with_a_small_copy": held["count"],
            "copy_bytes": held["bytes"],
            "idle_launch_after_it_ns": ns,
        },
        refuted_by="the batch gaps are as long with int64 labels",
    )


RULES = (
    input_pipeline_slow,
    no_prefetch,
    prefetch_on_host_only,
    float32_input,
    small_copy_before_step,
)
