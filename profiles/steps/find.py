"""Where the steps of a training lie in a recording (docs/reference/measures.md, "Steps")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .. import intervals, numbers, stats
from ..gpus.operations import Gpu
from ..measures import Pause
from ..timeline import Timeline
from . import content, pauses, period
from . import marks as mark
from .cycles import KernelSequence, agreement, boundaries, kernel_sequence, trains
from .layers import repeat_layers

# A whole step at the head is warm-up above median + max(5 standard deviations as told by the MAD, 10 % of the median).
_WARM_UP_MADS = 5 * stats.MAD_TO_SIGMA
_WARM_UP_SHARE = 0.10
# A later step is a break (an evaluation, a checkpoint) above so many medians.
BREAK_MEDIANS = 3


_NEVER = np.iinfo(np.int64).min


def _no_times() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Kernels that come again and again, and are no steps."""

    period_ns: int
    count: int


@dataclass(slots=True)
class _Refused:
    """Why sources have no steps, and what repeats all the same."""

    reasons: list[str] = field(default_factory=list)
    repeats: Repeats | None = None


@dataclass(frozen=True, slots=True)
class FoundSteps:
    """The measured steps of one GPU: whole ones, without warm-up, partial steps and breaks, in order of time.

    A step starts with its first kernel or graph launch and ends where the next starts, so that measured steps are
    contiguous (end_ns[i] == start_ns[i + 1]) but where a break was left out between them. All arrays are of one
    length k, the count of measured steps; times in ns on the recording's clock.
    """

    source: str | None = None  # marks, tensorflow, horovod, collectives, period; None: refused
    refused: str | None = None  # why there are no steps
    start_ns: NDArray[np.int64] = field(default_factory=_no_times)
    end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    step_number: NDArray[np.int64] = field(default_factory=_no_times)  # the mark's N, or the place in the recording
    # end of the step's own last kernel or graph
    last_kernel_end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    # end of the last kernel of the step before, measured or not: where the batch gap begins; -1: not known
    prev_last_kernel_end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    # every step found, measured or not, in order of time (which copy feeds which step, causes of idle outside the
    # measured steps): start, and end of its last kernel; the latter empty where there is no quiet span between steps
    all_start_ns: NDArray[np.int64] = field(default_factory=_no_times)
    all_last_kernel_end_ns: NDArray[np.int64] = field(default_factory=_no_times)
    # the N of the mark `step N` of each; empty where they were not found by what was launched under such marks
    all_number: NDArray[np.int64] = field(default_factory=_no_times)
    warm_up: int = 0  # steps left out at the head
    partial: int = 0  # steps cut by the recording's ends
    breaks: int = 0  # steps left out in between: evaluation, checkpoints, what a pause of the training cut
    unit: str = "step"  # "batch" where the marks are those of inference
    repeats: Repeats | None = None  # refused, but the kernels repeat
    pauses: tuple[Pause, ...] = ()  # of the training; no measured step meets one

    @property
    def count(self) -> int:
        return len(self.start_ns)

    @property
    def first(self) -> int | None:
        """The number of the first measured step; None where there is none."""
        return int(self.step_number[0]) if self.count else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """Every step found, measured or not: int64[k] ns each, whole: bool[k]. quiet: there is a batch gap before each."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    last_kernel_end_ns: NDArray[np.int64]
    prev_last_kernel_end_ns: NDArray[np.int64]
    number: NDArray[np.int64]
    whole: NDArray[np.bool_]
    quiet: bool


def find(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int] | None = None) -> FoundSteps:
    """The steps of a GPU, by the first source that has them; `timelines` and `shift_ns` are those `gpu` came from.

    In order of trust: marks of steps; ranges that TensorFlow writes once a step; Horovod's ranges, or the collectives
    when every step has as many; the period in the kernels. Else refused, and `refused` says why.
    """
    shifts = [0] * len(timelines) if shift_ns is None else shift_ns
    return _without_pauses(_found(gpu, timelines, shifts), pauses.pauses(gpu, timelines, shifts))


def _found(gpu: Gpu, timelines: Sequence[Timeline], shifts: Sequence[int]) -> FoundSteps:
    sequence = kernel_sequence(gpu)
    if not len(sequence):
        return FoundSteps(refused="no kernels and no CUDA graphs")
    refused = _Refused()
    stepped = mark.steps(gpu, timelines, shifts)
    unit = "batch" if content.infers(gpu, timelines, named=stepped is not None) else "step"
    for source, edges in _sources(sequence, gpu, timelines, shifts, stepped, refused):
        found = edges if isinstance(edges, FoundSteps) else _between(sequence, edges, source)
        unit = "batch" if "batch" in (unit, found.unit) else "step"
        if found.count:
            return replace(found, unit=unit)
        refused.reasons.append(f"{source}: none of their steps is whole")
    return FoundSteps(refused="; ".join(refused.reasons), repeats=refused.repeats, unit=unit)


def _sources(
    sequence: KernelSequence,
    gpu: Gpu,
    timelines: Sequence[Timeline],
    shifts: Sequence[int],
    stepped: mark.Marks | None,
    refused: _Refused,
) -> Iterator[tuple[str, FoundSteps | NDArray[np.int64]]]:
    """Each source that the recording has, in order of trust: the marked steps, or places of which one lies in each
    step. `refused` grows by why another source is none."""
    if stepped:
        yield "marks", _marked(sequence, stepped)
    for pattern in (mark.OPTIONAL_HAS_VALUE, mark.ITERATOR_GET_NEXT):
        ranges = mark.find(gpu, timelines, shifts, pattern)
        if ranges:
            yield "tensorflow", _once_a_step(sequence, mark.places(sequence, ranges))
    reduced = mark.find(gpu, timelines, shifts, mark.HOROVOD)
    anchors = (
        ("horovod", mark.places(sequence, reduced) if reduced else _no_times()),
        ("collectives", np.flatnonzero(sequence.reduces)),
        ("period", None),
    )
    for source, places in anchors:
        if places is not None and not len(places):
            continue
        found = period.by_kernels(sequence.name) if places is None else period.by_places(sequence.name, places)
        if isinstance(found, str):
            refused.reasons.append(f"{source}: {found}")
        elif repeat_layers(sequence, found.edges, gpu, timelines, shifts):
            refused.reasons.append(f"{source}: each repetition is another layer of the model, not a step")
        elif stepped and content.span_several(sequence, found.edges, stepped):
            refused.repeats = _repeats(sequence, found)
            refused.reasons.append(f"{source}: {_said(refused.repeats)}, several times in each marked step")
        elif source != "horovod" and not content.trains(sequence, found.edges, found.agrees, gpu, timelines, shifts):
            refused.repeats = _repeats(sequence, found)
            refused.reasons.append(
                f"{source}: {_said(refused.repeats)}, and no repetition holds what a training step does: a batch "
                "copied to the GPU, an optimizer's kernels, a range of a forward or backward pass"
            )
        else:
            yield source, found.edges[np.append(trains(sequence.name, found.edges), True)]


def _repeats(sequence: KernelSequence, found: period.Period) -> Repeats:
    lasted = np.diff(sequence.start_ns[found.edges])[found.agrees]
    return Repeats(int(np.sort(lasted)[(len(lasted) - 1) // 2]), len(lasted))


def _said(repeats: Repeats) -> str:
    return f"the kernels repeat every {numbers.duration(repeats.period_ns)} ({repeats.count} times)"


def _once_a_step(sequence: KernelSequence, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the places of TensorFlow's ranges those of training steps.

    Where one process feeds several GPUs each step may have several, as the period tells; else each has one, but for
    the batches of an evaluation, that lack the kernels of backward pass and update.
    """
    found = period.by_places(sequence.name, places)
    if (
        not isinstance(found, str)
        and np.searchsorted(places, found.edges[1]) - np.searchsorted(places, found.edges[0]) > 1
    ):
        return found.edges
    return places[np.append(trains(sequence.name, places), True)] if len(places) > 1 else places


def _marked(sequence: KernelSequence, marks: mark.Marks) -> FoundSteps:
    """Steps by `step N` marks: a step is what was launched under its mark.

    Nothing but its mark's end says where the last step ends, so it is whole only where that lies in the recording and
    no kernel ran past it: then the GPU was not done with the step, or with more than the step, when the host was.
    """
    owner = mark.owners(sequence, marks)
    if owner is None:
        unit = "batch" if marks.served else "step"
        return replace(_between(sequence, mark.places(sequence, marks), "marks"), unit=unit)
    first = mark.first_of(owner, len(marks), len(sequence))
    owned = owner >= 0
    last_end = np.full(len(marks), _NEVER)
    np.maximum.at(last_end, owner[owned], sequence.end_ns[owned])
    held = first < len(sequence)
    if not held.any():
        return FoundSteps()
    seen = slice(int(held.argmax()), len(marks) - int(held[::-1].argmax()))
    last_end = np.maximum.accumulate(last_end[seen])
    # A step without any kernel begins with its mark, or when the GPU is done with the step before.
    dry = np.maximum(marks.start_ns[seen], np.append(_NEVER, last_end[:-1]))
    start = np.where(held[seen], sequence.start_ns[np.minimum(first[seen], len(sequence) - 1)], dry)
    start = np.minimum.accumulate(start[::-1])[::-1]
    last_mark_end = _NEVER if marks.last_end_ns is None else marks.last_end_ns
    ends_itself = seen.stop == len(marks) and last_mark_end >= last_end[-1]
    end = np.append(start[1:], last_mark_end if ends_itself else last_end[-1])
    whole = np.append(np.ones(len(start) - 1, np.bool_), ends_itself)
    before = np.concatenate(([-1], last_end[:-1]))
    number = marks.number[seen]
    return replace(
        _measured("marks", _Steps(start, end, last_end, before, number, whole, quiet=True)),
        all_number=number,
        unit="batch" if marks.served else "step",
    )


def _between(sequence: KernelSequence, edges: NDArray[np.int64], source: str) -> FoundSteps:
    """Steps by a mark in each: cycles run from mark to mark, a step begins at the boundary within the cycle.

    The head, before the first boundary, is a step where its own mark lies in it and it holds what a step holds.
    """
    if len(edges) < 3:
        return FoundSteps()
    begins = boundaries(sequence, edges)
    place = begins.place if begins.quiet else edges
    head_whole = False
    if begins.quiet:
        # A first mark that came late in its step leaves a boundary inside it: the head up to the second is the step.
        for first in (1, 0) if len(place) > 1 else (0,):
            head_whole = edges[0] < place[first] and agreement(sequence.name, np.append(0, place[first:]))[0]
            if head_whole:
                place = place[first:]
                break
    head = place[0] > 0
    place = np.concatenate(([0] if head else [], place, [len(sequence)])).astype(np.int64)
    whole = np.ones(len(place) - 1, np.bool_)
    whole[-1] = False
    if head:
        whole[0] = head_whole
    start = sequence.start_ns[place[:-1]]
    last_end = sequence.reach_ns[place[1:] - 1]
    before = np.concatenate(([-1], last_end[:-1] if begins.quiet else np.full(len(start) - 1, -1)))
    number = np.arange(len(start)) + (0 if head else 1)
    end = np.append(start[1:], last_end[-1])
    return _measured(source, _Steps(start, end, last_end, before, number, whole, begins.quiet))


def _measured(source: str, steps: _Steps) -> FoundSteps:
    """Leaves out partial steps, warm-up at the head and breaks later on, and counts them."""
    lasted = steps.end_ns - steps.start_ns
    if not steps.whole.any():
        return FoundSteps(source=source, all_start_ns=steps.start_ns, partial=len(lasted))
    median = float(np.median(lasted[steps.whole]))
    mad = float(np.median(np.abs(lasted[steps.whole] - median)))
    slow = lasted > median + max(_WARM_UP_MADS * mad, _WARM_UP_SHARE * median)
    head = steps.whole & np.logical_and.accumulate(slow | ~steps.whole)
    breaks = steps.whole & ~head & (lasted > BREAK_MEDIANS * median)
    kept = steps.whole & ~head & ~breaks
    return FoundSteps(
        source=source,
        start_ns=steps.start_ns[kept],
        end_ns=steps.end_ns[kept],
        step_number=steps.number[kept],
        last_kernel_end_ns=steps.last_kernel_end_ns[kept],
        prev_last_kernel_end_ns=steps.prev_last_kernel_end_ns[kept],
        all_start_ns=steps.start_ns,
        all_last_kernel_end_ns=steps.last_kernel_end_ns if steps.quiet else _no_times(),
        warm_up=int(head.sum()),
        partial=int((~steps.whole).sum()),
        breaks=int(breaks.sum()),
    )


def _without_pauses(found: FoundSteps, paused: tuple[Pause, ...]) -> FoundSteps:
    """Without the steps that a pause cut, however short it was beside them."""
    if not paused:
        return found
    meets = intervals.total_in(pauses.covered(paused), found.start_ns, found.end_ns) > 0
    kept = _chosen(found, ~meets)
    return replace(kept, breaks=found.breaks + int(meets.sum()), pauses=paused)


def same_steps(found: Sequence[FoundSteps]) -> list[FoundSteps]:
    """The steps of a run's GPUs with the warm-up of the one that took longest left out on all of them.

    GPUs whose steps come from one source count them alike; those of another source are compared among themselves.
    """
    first = first_of_all((one.source, one.first) for one in found)
    return [starting_from(one, first) for one in found]


def first_of_all(each: Iterable[tuple[str | None, int | None]]) -> dict[str | None, int]:
    """By source the latest of the numbers of the first measured steps; None: a GPU without any."""
    first: dict[str | None, int] = {}
    for source, number in each:
        if number is not None:
            first[source] = max(first.get(source, 0), number)
    return first


def starting_from(found: FoundSteps, first: Mapping[str | None, int]) -> FoundSteps:
    """Without the steps before the number that its source has in `first`: these are warm-up."""
    number = first.get(found.source, 0)
    # Step numbers may start again (a second epoch): only the head is compared.
    early = int(np.logical_and.accumulate(found.step_number < number).sum())
    if not early:
        return found
    return replace(_chosen(found, slice(early, None)), warm_up=found.warm_up + early)


def _chosen(found: FoundSteps, which: slice | NDArray[np.bool_]) -> FoundSteps:
    """With these of the measured steps."""
    return replace(
        found,
        start_ns=found.start_ns[which],
        end_ns=found.end_ns[which],
        step_number=found.step_number[which],
        last_kernel_end_ns=found.last_kernel_end_ns[which],
        prev_last_kernel_end_ns=found.prev_last_kernel_end_ns[which],
    )
