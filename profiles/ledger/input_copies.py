"""Find the copies that bring batches to the GPU, and the steps that use them (docs/reference/measures.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COMPUTE, D2H, H2D, Operations
from ..steps.find import BREAK_MEDIANS
from ..steps.found import FoundSteps

SCALAR_BYTES = 4 * 1024
# The largest number of tensors of one size in a batch. Copies of constants, and of gradients that return to the GPU,
# are more frequent.
_MOST_ALIKE = 8
# This share of the batches may have copies on both sides of a step's start.
_APART = 0.1
# The number of copies to the GPU may differ from the number to the host by this share, since the recording's ends cut
# some off.
_UNRETURNED = 0.1


@dataclass(frozen=True, slots=True)
class InputCopies:
    """The operations of a GPU that copy a batch to it, as masks, bool[n].

    `this_step`: True if the step that uses the batch starts next, or runs already (its first kernels need no batch).
    `certain`: False if the order of the copies does not show which step uses which copy; `this_step` is then all False.
    """

    is_input: NDArray[np.bool_]
    this_step: NDArray[np.bool_]
    certain: bool


def input_copies(
    operations: Operations, steps: FoundSteps, *, iterator_ranges: bool, batch: NDArray[np.int64] | None = None
) -> InputCopies | None:
    """Find the host-to-device copies that bring the batches; None if there are fewer than three steps.

    Where the copies have `batch N` ranges (`batch`: the N of each operation's range, -1: none) and marks number the
    steps alike, the copies in these ranges are input. Elsewhere, input copies are the copies of a
    size (from 4 KiB) that comes equally often in each step and is not copied back as often (`returned_sizes`).

    The step that uses a copy is the next or running step if TensorFlow marks the copies (`iterator_ranges`), which
    it does with host feeds only. The same holds for copies of a size that come in batch gaps on the kernels'
    stream, since the kernels wait for them whatever they bring. Other copies of a size feed the steps first in,
    first out: with k copies a step, copy i feeds step i // k. This is certain if

    - there are more copies than the steps need, so that the first copy was recorded;
    - no copy ends after its step, and the copies of a step come together;
    - all copies after the first step are equally many steps ahead, within 1.
    """
    if batch is not None and np.isin(batch[batch >= 0], steps.all_number).any():
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
    """Sizes in bytes of the data that a training moves to the host and back (weights, optimizer states, activations).

    Equally many launched copies of such a size go to the host and to the GPU, within a tenth. Empty unless kernels
    or ranges name a backward pass or an optimizer, since an inference may return as many tensors as it takes.
    """
    if not steps.learns:
        return np.empty(0, np.int64)
    copies = operations.chosen(operations.launched & np.isin(operations.kind, (H2D, D2H)))
    moved, comes = copies.bytes, copies.kind == H2D
    there, came = np.unique(moved[comes & (moved >= SCALAR_BYTES)], return_counts=True)
    back, went = np.unique(moved[~comes & (moved >= SCALAR_BYTES)], return_counts=True)
    went = np.append(went, 0)[np.where(np.isin(there, back), np.searchsorted(back, there), len(back))]
    alike: NDArray[np.int64] = there[np.abs(came - went) <= _UNRETURNED * np.maximum(came, went)]
    return alike


def _marked(operations: Operations, steps: FoundSteps, batch: NDArray[np.int64]) -> InputCopies:
    """Find input copies by their `batch N` ranges.

    A copy outside all ranges whose size also occurs inside them has lost its range. It gets its number from the
    order of the copies of that size, if their numbers follow that order. Scalars get none, since other code copies
    scalars, too.
    """
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
    """The number of copies from one step's start to the next; 0 if it varies. `start`: starts of copies of one size.

    10 % of the steps (at least one) may have another number, or the total may be off by that many steps' copies.
    Breaks do not count, nor does the first step, in which a prefetch buffer fills up.
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
    seen = elsewhere[running >= 1]  # the first recorded step may be cut, or hold several steps
    return len(seen) > 1 and int(seen.sum()) <= max(1, int(_APART * len(seen)))


def _in_order(start: NDArray[np.int64], end: NDArray[np.int64], steps: FoundSteps, each: int) -> bool:
    step_start = steps.all_start_ns
    count = len(step_start)
    if len(start) <= each * count:
        return False
    following = np.repeat(step_start[1:], each)
    if (end[: len(following)] > following).any():  # copy i must end before the end of step i // each
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
    """bool per copy: True if the step that it feeds is running, or starts next and the gap before that step has begun.
    `feeds`: the number of the step that each copy feeds. `number`: the numbers of all steps; None: 0, 1, 2..."""
    step_start, last_end = steps.all_start_ns, steps.all_last_kernel_end_ns
    number = np.arange(len(step_start)) if number is None else number
    number = np.append(number, number[-1] + 1)  # the number of the step after the last
    running = np.searchsorted(step_start, start, side="right") - 1
    upcoming = feeds == number[running + 1]
    if len(last_end):
        upcoming &= start >= np.where(running >= 0, last_end[running], np.iinfo(np.int64).min)
    else:
        upcoming &= running < 0
    for_this: NDArray[np.bool_] = ((running >= 0) & (feeds == number[running])) | upcoming
    return for_this
