"""Tell a training step from a layer, an iteration of a solver or other work that repeats.

A step updates the weights, copies a batch, or goes forward and backward a fixed number of times; a layer does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..gpus.operations import H2D, Gpu
from ..model.names import fitting, rows_named
from ..model.timeline import Timeline
from .cycles import Flags, Int64s, KernelSequence
from .marks import Marks, owners

if TYPE_CHECKING:
    import pandas as pd

OPTIMISER_KERNEL = (
    r"(?i:optimi[sz]er|apply(?:adam|momentum|rms|gradient|ada|lamb|ftrl)|_?adamw?(?![a-z])|multi_tensor_apply|fused_sgd"
    r"|(?<![a-z])lamb(?![a-z]))"
)
_BACKWARD_KERNEL = r"(?i:backward|_bwd|[dw]grad|_bw_|grad_input|grad_weight)"
_TORCH_KERNEL = r"\bat::native\b"
_OPTIMISER_RANGE = r"Optimizer\.(?:step|zero_grad)#|optimi[sz]er(?:[ _.]step)?|Optimizer\.\d+\("
# Ranges around a forward or backward pass of the whole model, as DDP, ONNX Runtime and people name them; or around
# the gradient of one node of a graph.
_PASS_RANGE = (
    r"(?i:(?:#+ )?(?:batch-? ?)?(?:forward|backward)(?:[ _]pass)?(?: #+)?)|DistributedDataParallel\.forward"
    r"|(?s:.*)(?:_Grad|Gradients?)/(?s:.*)|.*_Grad"
)
CONTENT_RANGE = (
    r"Optimizer\.(?:step|zero_grad)#.*|(?:#+ )?optimi[sz]er(?:[ _.]step)?(?: #+)?|(?s:.*)Optimizer\.\d+\((?s:.*)"
    rf"|{_PASS_RANGE}"
)
# A copy of a batch has at least this many bytes; smaller copies may be scalars, which any code copies.
_BATCH_BYTES = 4 * 1024
# This share of the cycles, or one cycle, may differ from the usual count, because copies run ahead of the kernels and
# the recording's ends cut some copies off.
_OTHERS = 0.1


def span_several(sequence: KernelSequence, edges: Int64s, marks: Marks) -> bool:
    """True if a step's mark usually holds two or more of the cycles [edges[i], edges[i + 1]), so that cycles are no
    steps."""
    called = owners(sequence, marks)
    owner = np.searchsorted(marks.start_ns, sequence.start_ns, side="right") - 1 if called is None else called
    owner = np.where((owner >= 0) & (sequence.call_start_ns < marks.end_ns[owner]), owner, -1)
    first, last = owner[edges[:-1]], owner[edges[1:] - 1]
    inside = first[(first >= 0) & (first == last)]
    return len(inside) > 0 and bool(np.median(np.unique(inside, return_counts=True)[1]) >= 2)


def trains(
    sequence: KernelSequence,
    edges: Int64s,
    agrees: Flags,
    gpu: Gpu,
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
) -> bool:
    """True if the agreeing cycles contain some sign of a training step: equally often in nearly all of them."""
    for places in _evidence(sequence, gpu, timelines, shift_ns):
        each = np.bincount(np.searchsorted(edges, places, side="right"), minlength=len(edges) + 1)[1:-1][agrees]
        usual = np.median(each) if len(each) else 0
        if usual >= 1 and (each != usual).sum() <= max(1, _OTHERS * len(each)):
            return True
    return False


def infers(gpu: Gpu, timelines: Sequence[Timeline], *, named: bool) -> bool:
    """True if the recorded program is an inference.

    For JAX: its programs compute no derivative, and no range names an optimizer. For PyTorch: neither kernels nor
    ranges name a backward pass or an optimizer. A Kineto trace is PyTorch's whatever its kernels are called. For
    recordings in other formats the answer is False if they have marks of steps or batches (`named`).
    """
    if all(timelines[index].differentiates is False for index, _ in gpu.places):
        return not any(fitting(names, _OPTIMISER_RANGE).any() for names in _range_names(gpu, timelines))
    kineto = all(timelines[index].recording.format == "kineto" for index, _ in gpu.places)
    if not kineto and (named or not fitting(gpu.names, _TORCH_KERNEL).any()):
        return False
    return not learns(gpu, timelines)


def learns(gpu: Gpu, timelines: Sequence[Timeline]) -> bool:
    """True if a kernel or a range names a backward pass or an optimizer."""
    ranges = f"(?:{_OPTIMISER_RANGE})|(?i:backward)"
    if any(fitting(names, ranges).any() for names in _range_names(gpu, timelines)):
        return True
    return bool(fitting(gpu.names, f"{_BACKWARD_KERNEL}|(?:{OPTIMISER_KERNEL})").any())


def _range_names(gpu: Gpu, timelines: Sequence[Timeline]) -> Iterator[pd.Index]:
    return (timelines[index].marks["name"].cat.categories for index, _ in gpu.places)


def _evidence(
    sequence: KernelSequence, gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int]
) -> Iterator[Int64s]:
    """Yield the places in the sequence of each sign of a training step: an optimizer's kernel, copies of one size, a
    range."""
    for number in np.flatnonzero(fitting(gpu.names, OPTIMISER_KERNEL)):
        yield np.flatnonzero(sequence.name == number)
    copied = np.flatnonzero(gpu.operations.kind == H2D)
    sizes = gpu.operations.at(copied).bytes
    for size in np.unique(sizes[sizes >= _BATCH_BYTES]).tolist():
        yield np.searchsorted(sequence.start_ns, gpu.operations.start_ns[copied[sizes == size]])
    for process, (recording, pid) in enumerate(gpu.processes):
        yield from _ranges(
            sequence, timelines[recording], process, pid, shift_ns[recording] - shift_ns[gpu.places[0][0]]
        )


def _ranges(sequence: KernelSequence, timeline: Timeline, process: int, pid: int, shift_ns: int) -> Iterator[Int64s]:
    """For each range name, yield the places in the sequence of the first launch after each range of that name begins.
    Names are compared whole, so that ranges of different layers count apart."""
    names = timeline.marks["name"].cat
    rows = rows_named(timeline.marks, CONTENT_RANGE, pid, whole=True)
    mine = np.flatnonzero(sequence.launched & (sequence.process == process))
    if not len(rows) or not len(mine):
        return
    order = np.argsort(sequence.call_start_ns[mine], kind="stable")
    called = sequence.call_start_ns[mine][order]
    codes = names.codes.to_numpy()[rows]
    begins = timeline.marks["start_ns"].to_numpy()[rows] + shift_ns
    for code in np.unique(codes).tolist():
        first = np.searchsorted(called, begins[codes == code])
        yield mine[order[first[first < len(order)]]]
