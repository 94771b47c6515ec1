"""Find where the steps of a training lie in a recording (docs/reference/measures.md, "Steps")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Gpu
from ..ground import numbers, stats
from ..model.timeline import Timeline
from . import content, pauses, period
from . import marks as mark
from .cycles import KernelSequence, agreement, boundaries, kernel_sequence, trains
from .found import FoundSteps, Launched, LongSteps, Repeats, no_times
from .layers import repeat_layers

# Steps at the start are warm-up as long as they take longer than median + max(5 sigma, 10 % of the median); sigma is
# estimated from the median absolute deviation.
_WARM_UP_MADS = 5 * stats.MAD_TO_SIGMA
_WARM_UP_SHARE = 0.10
# A later step that takes longer than this many medians is a break (an evaluation, a checkpoint).
BREAK_MEDIANS = 3
_NONE_WHOLE: Final = "none of their steps is whole"
# Names of the sources of steps, for the reasons why there are none.
_SOUGHT: Final = {
    "marks": "by marks",
    "tensorflow": "by TensorFlow's ranges",
    "pytorch": "by the optimizer's calls",
    "horovod": "by Horovod's ranges",
    "collectives": "by collectives",
    "period": "by repeating kernels",
}
_NEVER, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max - 1


@dataclass(slots=True)
class _Refused:
    """Reasons why no steps were found from some sources, and a period of the kernels that is not the training
    step's."""

    reasons: list[str] = field(default_factory=list)
    repeats: Repeats | None = None


@dataclass(frozen=True, slots=True)
class _Steps:
    """All steps found, with those that are left out of the measures later: int64[k] in ns, `whole`: bool[k]. `quiet`:
    True if a batch gap precedes each step."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    last_kernel_end_ns: NDArray[np.int64]
    prev_last_kernel_end_ns: NDArray[np.int64]
    number: NDArray[np.int64]
    whole: NDArray[np.bool_]
    quiet: bool
    launched: Launched | None = None


def find(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int] | None = None) -> FoundSteps:
    """Find the steps of a GPU from the most trusted source that shows them; otherwise `refused` says why there are
    none.

    Sources in order of trust: marks of steps; ranges that TensorFlow writes once a step; PyTorch's ranges around an
    optimizer's call; Horovod's ranges, or the collectives, if every step has the same number of them; the period in the
    kernels. `timelines`: all recordings; `shift_ns`: ns that bring each recording to the common clock.
    """
    shifts = [0] * len(timelines) if shift_ns is None else shift_ns
    stepped = mark.steps(gpu, timelines, shifts)
    found = _found(gpu, timelines, shifts, stepped)
    passes = mark.find(gpu, timelines, shifts, mark.SERVED)
    found = replace(
        found,
        served=passes is not None,
        decodes=passes is None or passes.decodes,
        marked=0 if stepped is None else len(stepped),
        steps_each=stepped.steps_each if stepped is not None and found.source == "marks" else 1,
        learns=content.learns(gpu, timelines),
    )
    return pauses.without(found, pauses.pauses(gpu, timelines, shifts))


def _found(gpu: Gpu, timelines: Sequence[Timeline], shifts: Sequence[int], stepped: mark.Marks | None) -> FoundSteps:
    sequence = kernel_sequence(gpu)
    if not len(sequence):
        return FoundSteps(refused="no kernels and no CUDA graphs")
    refused = _Refused()
    unit = "batch" if content.infers(gpu, timelines, named=stepped is not None) else "step"
    for source, edges in _sources(sequence, gpu, timelines, shifts, stepped, refused):
        found = edges if isinstance(edges, FoundSteps) else _between(sequence, edges, source)
        unit = "batch" if "batch" in (unit, found.unit) else "step"
        if found.count:
            return replace(found, unit=unit)
        refused.reasons.append(f"{_SOUGHT[source]}: {_NONE_WHOLE}")
    return FoundSteps(refused="; ".join(refused.reasons), repeats=refused.repeats, unit=unit)


def _sources(
    sequence: KernelSequence,
    gpu: Gpu,
    timelines: Sequence[Timeline],
    shifts: Sequence[int],
    stepped: mark.Marks | None,
    refused: _Refused,
) -> Iterator[tuple[str, FoundSteps | NDArray[np.int64]]]:
    """Yield (source, steps) or (source, one kernel's place in each step) for each source of the recording, by trust.
    Adds to `refused` why other sources are not used."""
    if stepped:
        yield "marks", _marked(sequence, stepped)
    for pattern in (mark.OPTIONAL_HAS_VALUE, mark.ITERATOR_GET_NEXT):
        ranges = mark.find(gpu, timelines, shifts, pattern)
        if ranges:
            yield "tensorflow", _once_a_step(sequence, mark.places(sequence, ranges))
    updates = mark.find(gpu, timelines, shifts, mark.OPTIMIZER)
    if updates:
        edges = _by_updates(sequence, mark.places(sequence, updates))
        if isinstance(edges, str):
            refused.reasons.append(f"{_SOUGHT['pytorch']}: {edges}")
        else:
            yield "pytorch", edges
    reduced = mark.find(gpu, timelines, shifts, mark.HOROVOD)
    anchors = (
        ("horovod", mark.places(sequence, reduced) if reduced else no_times()),
        ("collectives", np.flatnonzero(sequence.reduces)),
        ("period", None),
    )
    for source, places in anchors:
        if places is not None and not len(places):
            continue
        found = period.by_kernels(sequence.name) if places is None else period.by_places(sequence.name, places)
        if isinstance(found, str):
            refused.reasons.append(f"{_SOUGHT[source]}: {found}")
        elif repeat_layers(sequence, found.edges, gpu, timelines, shifts):
            refused.reasons.append(f"{_SOUGHT[source]}: each repetition is another layer of the model, not a step")
        elif stepped and content.span_several(sequence, found.edges, stepped):
            refused.repeats = _repeats(sequence, found)
            refused.reasons.append(f"{_SOUGHT[source]}: {_said(refused.repeats)}, several times in each marked step")
        elif source != "horovod" and not content.trains(sequence, found.edges, found.agrees, gpu, timelines, shifts):
            refused.repeats = _repeats(sequence, found)
            refused.reasons.append(
                f"{_SOUGHT[source]}: {_said(refused.repeats)}, and no repetition holds what a training step does: a "
                "batch copied to the GPU, an optimizer's kernels, a range of a forward or backward pass"
            )
        else:
            yield source, found.edges[np.append(trains(sequence.name, found.edges), True)]


def _repeats(sequence: KernelSequence, found: period.Period) -> Repeats:
    lasted = np.diff(sequence.start_ns[found.edges])[found.agrees]
    return Repeats(int(np.sort(lasted)[(len(lasted) - 1) // 2]), len(lasted))


def _said(repeats: Repeats) -> str:
    return f"the kernels repeat every {numbers.duration(repeats.period_ns)} ({repeats.count} times)"


def _once_a_step(sequence: KernelSequence, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Choose the places of TensorFlow's ranges that begin training steps.

    If one process feeds several GPUs, a step may have several ranges; then the period of the kernels decides. Otherwise
    each range is a step, except for evaluation batches, which lack the kernels of a backward pass and an update.
    """
    found = period.by_places(sequence.name, places)
    if (
        not isinstance(found, str)
        and np.searchsorted(places, found.edges[1]) - np.searchsorted(places, found.edges[0]) > 1
    ):
        return found.edges
    return places[np.append(trains(sequence.name, places), True)] if len(places) > 1 else places


def _by_updates(sequence: KernelSequence, places: NDArray[np.int64]) -> NDArray[np.int64] | str:
    """Choose optimizer calls so that one lies in each step; else return the reason why they give no steps.

    The period of the calls is tried first, because a model may have several optimizers, which are called in turn.
    Without a period, calls count as steps if all cycles from the first to the last agreeing one agree.
    """
    found = period.by_places(sequence.name, places)
    if not isinstance(found, str):
        return found.edges
    agrees = np.flatnonzero(agreement(sequence.name, places)) if len(places) > 2 else no_times()
    if len(agrees) > 1 and len(agrees) == agrees[-1] - agrees[0] + 1:
        return places[agrees[0] : agrees[-1] + 2]
    return found


def _marked(sequence: KernelSequence, marks: mark.Marks) -> FoundSteps:
    """Find steps by `step N` marks: a step consists of the operations launched under its mark.

    Only the end of the last mark tells where the last step ends. The last step is therefore whole only if that
    end was recorded and no kernel ran past it.
    """
    owner = mark.owners(sequence, marks)
    if owner is None:
        unit = "batch" if marks.served else "step"
        return replace(_between(sequence, mark.places(sequence, marks), "marks"), unit=unit)
    first = mark.first_of(owner, len(marks), len(sequence))
    last_end = mark.last_ends(sequence, owner, len(marks), _NEVER)
    held = first < len(sequence)
    if not held.any():
        return FoundSteps()
    seen = slice(int(held.argmax()), len(marks) - int(held[::-1].argmax()))
    last_end = np.maximum.accumulate(last_end[seen])
    # A step without any kernel begins with its mark, or when the GPU has finished the previous step if that is later.
    dry = np.maximum(marks.start_ns[seen], np.append(_NEVER, last_end[:-1]))
    start = np.where(held[seen], sequence.start_ns[np.minimum(first[seen], len(sequence) - 1)], dry)
    start = np.minimum.accumulate(start[::-1])[::-1]
    last_mark_end = _NEVER if marks.last_end_ns is None else marks.last_end_ns
    ends_itself = seen.stop == len(marks) and last_mark_end >= last_end[-1]
    end = np.append(start[1:], last_mark_end if ends_itself else last_end[-1])
    whole = np.append(np.ones(len(start) - 1, np.bool_), ends_itself)
    before = np.concatenate(([-1], last_end[:-1]))
    number = marks.number[seen]
    launched = None
    if (np.diff(owner[owner >= 0]) < 0).any():
        until = np.append(marks.start_ns[1:], _LATEST)
        launched = Launched(marks.process, marks.start_ns[seen], until[seen])
    return replace(
        _measured("marks", _Steps(start, end, last_end, before, number, whole, quiet=True, launched=launched)),
        all_number=number,
        unit="batch" if marks.served else "step",
    )


def _between(sequence: KernelSequence, edges: NDArray[np.int64], source: str) -> FoundSteps:
    """Find steps from one kernel's place in each (`edges`). A cycle runs from place to place; a step begins within a
    cycle.

    The kernels before the first boundary are a whole step if one of the places lies among them and they agree
    with a cycle.
    """
    if len(edges) < 3:
        return FoundSteps()
    begins = boundaries(sequence, edges)
    place = begins.place if begins.quiet else edges
    head_whole = False
    if begins.quiet:
        # If the first of `edges` came late in its step, the first boundary lies inside that step: try the second one
        # first. Leave at least one cycle to compare with, since the kernels before the first boundary always agree
        # with themselves.
        for first in (one for one in (1, 0) if one + 1 < len(place)):
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
    """Leave out partial steps, warm-up steps at the start and later breaks, and count the steps left out of each
    kind."""
    lasted = steps.end_ns - steps.start_ns
    whole = steps.whole & (lasted > 0)  # a step of length 0 has a wrong time
    if not whole.any():
        return FoundSteps(source=source, all_start_ns=steps.start_ns, partial=len(lasted))
    median = float(np.median(lasted[whole]))
    mad = float(np.median(np.abs(lasted[whole] - median)))
    # If steps vary much, median + 5 sigma may exceed the limit of a break; a step above the limit of a break is slow,
    # too.
    slow = lasted > min(median + max(_WARM_UP_MADS * mad, _WARM_UP_SHARE * median), BREAK_MEDIANS * median)
    head = whole & np.logical_and.accumulate(slow | ~whole)
    breaks = whole & ~head & (lasted > BREAK_MEDIANS * median)
    kept = whole & ~head & ~breaks
    # The gap before a step that follows a break belongs to the break.
    before = np.where(np.append(False, breaks[:-1]), -1, steps.prev_last_kernel_end_ns)
    return FoundSteps(
        source=source,
        start_ns=steps.start_ns[kept],
        end_ns=steps.end_ns[kept],
        step_number=steps.number[kept],
        last_kernel_end_ns=steps.last_kernel_end_ns[kept],
        prev_last_kernel_end_ns=before[kept],
        all_start_ns=steps.start_ns,
        all_last_kernel_end_ns=steps.last_kernel_end_ns if steps.quiet else no_times(),
        launched=steps.launched and steps.launched.chosen(kept),
        warm_up=int(head.sum()),
        partial=int((~whole).sum()),
        breaks=int(breaks.sum()),
        long=LongSteps(
            steps.start_ns[breaks], steps.end_ns[breaks], steps.number[breaks], steps.last_kernel_end_ns[breaks]
        ),
    )
