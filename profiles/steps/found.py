"""The steps found on a GPU, and the choice of a first measured step that all GPUs of a run have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..model.steps import Pause


def no_times() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Kernels that repeat, but whose repetitions are not taken for steps: the period and the number of repetitions."""

    period_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class LongSteps:
    """Steps that took over 3 times the median. The arrays, int64[n], are those of FoundSteps with these names."""

    start_ns: NDArray[np.int64] = field(default_factory=no_times)
    end_ns: NDArray[np.int64] = field(default_factory=no_times)
    step_number: NDArray[np.int64] = field(default_factory=no_times)
    last_kernel_end_ns: NDArray[np.int64] = field(default_factory=no_times)

    def __len__(self) -> int:
        return len(self.start_ns)

    def chosen(self, which: NDArray[np.bool_]) -> LongSteps:
        """The steps for which `which` is True."""
        return LongSteps(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Launched:
    """Launch times of steps that overlap on the GPU: int64[k] ns each, on the GPU's clock. A step owns every operation
    that the process launched after `after_ns` and until `until_ns`, whenever it ran."""

    process: int
    after_ns: NDArray[np.int64]
    until_ns: NDArray[np.int64]

    def chosen(self, which: slice | NDArray[np.bool_]) -> Launched:
        return Launched(self.process, self.after_ns[which], self.until_ns[which])


@dataclass(frozen=True, slots=True)
class FoundSteps:
    """The measured steps of one GPU in order of time: whole steps, without warm-up and breaks.

    A step starts with its first kernel or graph launch and ends where the next starts, so that measured steps are
    contiguous (end_ns[i] == start_ns[i + 1]) except where a break between them was left out. Arrays have one
    entry per measured step, those named `all_...` one per step found; times in ns on the recording's clock.
    """

    source: str | None = None  # marks, tensorflow, pytorch, horovod, collectives or period; None: no steps
    refused: str | None = None  # why there are no steps
    start_ns: NDArray[np.int64] = field(default_factory=no_times)
    end_ns: NDArray[np.int64] = field(default_factory=no_times)
    step_number: NDArray[np.int64] = field(default_factory=no_times)  # the mark's N, or counted
    # end of the last kernel or graph launched in the step
    last_kernel_end_ns: NDArray[np.int64] = field(default_factory=no_times)
    # end of the previous step's last kernel, where the batch gap begins; -1: not known
    prev_last_kernel_end_ns: NDArray[np.int64] = field(default_factory=no_times)
    # Every step found, measured or not, in order of time: start, and end of its last kernel (empty if no batch gaps
    # lie between steps). Needed to match copies with steps, and for causes of idle outside the measured steps.
    all_start_ns: NDArray[np.int64] = field(default_factory=no_times)
    all_last_kernel_end_ns: NDArray[np.int64] = field(default_factory=no_times)
    # For each step found, the N of its mark `step N`; empty unless steps were found by the launches under such marks.
    all_number: NDArray[np.int64] = field(default_factory=no_times)
    launched: Launched | None = None  # None if steps do not overlap on the GPU
    warm_up: int = 0  # number of slow steps left out at the start
    partial: int = 0  # number of steps left out because the recording's ends cut them
    breaks: int = 0  # number of later steps left out: long ones (evaluation, checkpoints), steps with a pause
    # the long steps left out, without those that a pause cut
    long: LongSteps = field(default_factory=LongSteps)
    unit: str = "step"  # "step", or "batch" for an inference
    served: bool = False  # True if the recording has marks of an inference server, even if steps were found otherwise
    decodes: bool = True  # False if every pass of an inference server only reads prompts (prefill)
    learns: bool = False  # True if kernels or ranges name a backward pass or an optimizer
    marked: int = 0  # number of marks of steps, even if steps were found otherwise
    steps_each: int = 1  # number of steps that each step here stands for, by the numbers of its marks
    repeats: Repeats | None = None  # set if no steps were found, but the kernels repeat
    pauses: tuple[Pause, ...] = ()  # pauses of the training; no measured step overlaps one

    @property
    def count(self) -> int:
        return len(self.start_ns)

    @property
    def first(self) -> int | None:
        """The number of the first measured step; None where there is none."""
        return int(self.step_number[0]) if self.count else None


def first_of_all(each: Iterable[tuple[str | None, int | None]]) -> dict[str | None, int]:
    """For each source of steps, the largest number of a first measured step over the GPUs.

    `each`: for each GPU, the source of its steps and the number of its first measured step (None: no steps). GPUs
    are compared by source, because only GPUs with the same source number their steps alike.
    """
    first: dict[str | None, int] = {}
    for source, number in each:
        if number is not None:
            first[source] = max(first.get(source, 0), number)
    return first


def starting_with(found: FoundSteps, first: Mapping[str | None, int]) -> FoundSteps:
    """Leave out the steps before `first`, as `starting_from` does, unless the GPU would then have no steps. Such a GPU
    was recorded at another time than the others, and keeps its steps."""
    kept = starting_from(found, first)
    return kept if kept.count else found


def starting_from(found: FoundSteps, first: Mapping[str | None, int]) -> FoundSteps:
    """Leave out the steps before `first[found.source]`, a step number, and count them as warm-up."""
    number = first.get(found.source, 0)
    # Only steps at the start are left out, since step numbers may start again in a second epoch.
    early = int(np.logical_and.accumulate(found.step_number < number).sum())
    if not early:
        return found
    kept = chosen(found, slice(early, None))
    later = found.long.start_ns >= (kept.start_ns[0] if kept.count else np.iinfo(np.int64).max)
    return replace(
        kept,
        warm_up=found.warm_up + early + int((~later).sum()),
        breaks=found.breaks - int((~later).sum()),
        long=found.long.chosen(later),
    )


def chosen(found: FoundSteps, which: slice | NDArray[np.bool_]) -> FoundSteps:
    """A copy that keeps only the measured steps in `which`."""
    return replace(
        found,
        start_ns=found.start_ns[which],
        end_ns=found.end_ns[which],
        step_number=found.step_number[which],
        last_kernel_end_ns=found.last_kernel_end_ns[which],
        prev_last_kernel_end_ns=found.prev_last_kernel_end_ns[which],
        launched=found.launched and found.launched.chosen(which),
    )
