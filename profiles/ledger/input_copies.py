"""Copies that bring batches to the GPU, and the steps they belong to (docs/reference/measures.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COMPUTE, D2H, H2D, Operations
from ..steps.find import BREAK_MEDIANS
from ..steps.found import FoundSteps

SCALAR_BYTES = 4 * 1024
# A batch has at most this many tensors of one size; constants, and gradients that return to the GPU, come oftener.
_MOST_ALIKE = 8
# The share of batches whose tensors of one size a step's start may part.
_APART = 0.1
# The share of copies of a size by which those to the GPU and those to the host may differ: the recording's ends cut.
_UNRETURNED = 0.1


@dataclass(frozen=True, slots=True)
class InputCopies:
    """Operations that bring a batch, as masks, bool[n].

    `this_step`: the batch is for the step that is about to start, or has started with kernels that need no batch.
    `certain` is False if the order of the copies does not tell that; `this_step` is then False everywhere.
    """

    is_input: NDArray[np.bool_]
    this_step: NDArray[np.bool_]
    certain: bool


def input_copies(
    operations: Operations, steps: FoundSteps, *, iterator_ranges: bool, batch: NDArray[np.int64] | None = None
) -> InputCopies | None:
    """The host-to-device copies that bring the batches; None where there are no steps.

    Where copies were launched in `batch N` ranges and steps have the numbers of their marks, it is those, of whatever
    size: `batch` is the N of each operation, -1 in none. Else those whose size (from 4 KiB up) comes k times a step,
    and does not return as often (`returned_sizes`).
    With `iterator_ranges` (TensorFlow's `_IteratorGetNext#`, written with host feeds only) a copy is for the step
    about to start or already started. So are copies of a size that come in batch gaps on the stream of the kernels,
    which wait for them whatever they bring. Else copies of a size feed the steps first in, first out, copy i step
    i // k. This is certain if there are more than the steps need, so that the recording saw the first of them, none
    comes after its step, a step's copies come together, and after the first step each is as many steps ahead as the
    others, within 1.
    """
    if batch is not None and len(steps.all_number):
        return _marked(operations, steps, batch)
    if len(steps.all_start_ns) < 3:
        return None
    is_input = np.zeros(len(operations), bool)
    this_step = np.zeros(len(operations), bool)
    certain = True
    candidates = np.flatnonzero(operations.kind == H2D)
    moved = operations.chosen(operations.kind == H2D).bytes
    sizes = np.unique(moved[moved >= SCALAR_BYTES])
    for size in sizes[~np.isin(sizes, returned_sizes(operations, steps))].tolist():
        rows = candidates[moved == size]
        each = _each_step(operations.start_ns[rows], steps.all_start_ns)
        if not each:
            continue
        is_input[rows] = True
        if iterator_ranges or _in_the_way(operations, rows, steps):
            this_step[rows] = True
        elif _in_order(operations.start_ns[rows], operations.end_ns[rows], steps, each):
            this_step[rows] = _for_this_step(operations.start_ns[rows], np.arange(len(rows)) // each, steps)
        else:
            certain = False
    return InputCopies(is_input, this_step & certain, certain)


def returned_sizes(operations: Operations, steps: FoundSteps) -> NDArray[np.int64]:
    """Sizes of what a training keeps on the host and copies to and fro (weights, optimizer states, activations): as
    many launched copies of a size go to the host as come from there, within a tenth.

    Only where a backward pass or an optimizer is named: what answers or filters may give back as much as it takes.
    """
    if not steps.learns:
        return np.empty(0, np.int64)
    large = operations.launched & (operations.bytes >= SCALAR_BYTES)
    there, came = np.unique(operations.bytes[large & (operations.kind == H2D)], return_counts=True)
    back, went = np.unique(operations.bytes[large & (operations.kind == D2H)], return_counts=True)
    went = np.append(went, 0)[np.where(np.isin(there, back), np.searchsorted(back, there), len(back))]
    alike: NDArray[np.int64] = there[np.abs(came - went) <= _UNRETURNED * np.maximum(came, went)]
    return alike


def _marked(operations: Operations, steps: FoundSteps, batch: NDArray[np.int64]) -> InputCopies:
    """Input copies by their `batch N` ranges. A copy outside of all ranges, as large as those inside, gets its number
    from their order, first in, first out, if they agree on one: its range was lost. Scalars get none, since other
    code copies scalars too."""
    number = batch.copy()
    candidates = np.flatnonzero(operations.kind == H2D)
    moved = operations.bytes[candidates]
    known = batch[candidates] >= 0
    for size in np.unique(moved[known & (moved >= SCALAR_BYTES)]).tolist():
        rows = candidates[moved == size]
        told = np.flatnonzero(batch[rows] >= 0)
        first = batch[rows[told]] - told
        if (first == first[0]).all():
            number[rows] = np.arange(len(rows)) + first[0]
    is_input = number >= 0
    rows = np.flatnonzero(is_input)
    this_step = np.zeros(len(operations), bool)
    this_step[rows] = _for_this_step(operations.start_ns[rows], number[rows], steps, steps.all_number)
    return InputCopies(is_input, this_step, certain=True)


def _each_step(start: NDArray[np.int64], step_start: NDArray[np.int64]) -> int:
    """The number of these copies between one step's start and the next's; 0: not the same each time.

    Another number is allowed in 10 % of the steps (at least one), or as many copies too many or too few in all. Breaks
    do not count, nor does the first step, in which a prefetching feed fills up.
    """
    length = np.diff(step_start)[1:]
    usual = length <= BREAK_MEDIANS * np.median(length)
    per_step = np.diff(np.searchsorted(start, step_start))[1:][usual]
    each = int(np.median(per_step))
    if not 1 <= each <= _MOST_ALIKE or each != np.median(per_step):
        return 0
    others = max(1, len(per_step) // 10)
    in_all = abs(int(per_step.sum()) - each * len(per_step))
    return each if in_all <= each * others or int((per_step != each).sum()) <= others else 0


def _in_the_way(operations: Operations, rows: NDArray[np.int64], steps: FoundSteps) -> bool:
    """True if these copies come in batch gaps, on the stream that most kernels run on."""
    last_end = steps.all_last_kernel_end_ns
    computing = operations.stream[operations.is_kernel & (operations.kind == COMPUTE)]
    if not len(last_end) or not len(computing):
        return False
    start = operations.start_ns[rows]
    running = np.searchsorted(steps.all_start_ns, start, side="right") - 1
    elsewhere = (start < last_end[running]) | (operations.stream[rows] != np.bincount(computing).argmax())
    seen = elsewhere[running >= 1]  # the first may be several steps, or a part of one
    return len(seen) > 1 and int(seen.sum()) <= max(1, int(_APART * len(seen)))


def _in_order(start: NDArray[np.int64], end: NDArray[np.int64], steps: FoundSteps, each: int) -> bool:
    step_start = steps.all_start_ns
    count = len(step_start)
    if len(start) <= each * count:
        return False
    following = np.repeat(step_start[1:], each)
    if (end[: len(following)] > following).any():  # copy i had to be there before step i // each was over
        return False
    running = np.searchsorted(step_start, start, side="right") - 1
    whole = running[: len(start) // each * each].reshape(-1, each)
    if (whole[:, 0] != whole[:, -1]).mean() > _APART:
        return False
    inside = (running >= 1) & (running < count - 1)
    ahead = (np.arange(len(start)) // each - running)[inside]
    return len(ahead) > 0 and int(ahead.max() - ahead.min()) <= 1


def _for_this_step(
    start: NDArray[np.int64], feeds: NDArray[np.int64], steps: FoundSteps, number: NDArray[np.int64] | None = None
) -> NDArray[np.bool_]:
    """bool per copy: True if step `feeds` of that copy is running, or starts next and the gap before it is open.

    `number`: the steps' numbers as `feeds` uses them; None: 0, 1, 2...
    """
    step_start, last_end = steps.all_start_ns, steps.all_last_kernel_end_ns
    number = np.arange(len(step_start)) if number is None else number
    number = np.append(number, number[-1] + 1)  # the step after the last
    running = np.searchsorted(step_start, start, side="right") - 1
    upcoming = feeds == number[running + 1]
    if len(last_end):
        upcoming &= start >= np.where(running >= 0, last_end[running], np.iinfo(np.int64).min)
    else:
        upcoming &= running < 0
    for_this: NDArray[np.bool_] = ((running >= 0) & (feeds == number[running])) | upcoming
    return for_this
