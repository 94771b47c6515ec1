"""Marks that come once a step: those that frameworks and servers write, TensorFlow's and Horovod's ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..gpus.operations import Gpu
from ..marks import STEP_PREFIX
from ..names import rows_of, wholly
from ..timeline import Timeline
from .cycles import Int64s, KernelSequence

if TYPE_CHECKING:
    import pandas as pd

STEP = STEP_PREFIX + r"(\d{1,18})"
# A forward pass of an inference server: SGLang's `step[DECODE bs=32]`, vLLM's `execute_context_1(128)_generation_4(9)`.
SERVED = r"step\[.*\]|execute_\w*(?:context|generation|model)\w*(?:\(.*)?"
# What is marked as a step, most trusted first. A group is the step's number. Not `epoch 1`, which holds many.
STEPS = (
    STEP,
    r"ProfilerStep#(\d{1,18})",  # torch.profiler
    # jax.profiler.StepTraceAnnotation and Keras's callback, as an NVTX range holds their arguments
    r"[^#]*#(?:[^#]*,)?step_num=(\d{1,18})(?:,[^#]*)?#",
    SERVED,
    r"(?i:(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?))[ _#:-]{0,3}(\d{1,18})",
)
# TensorFlow's names are like `#edge_name=edge_3_OptionalHasValue#`; the second comes with host feeds only.
OPTIONAL_HAS_VALUE = r".*_OptionalHasValue#"
ITERATOR_GET_NEXT = r".*_IteratorGetNext#"
HOROVOD = r"Horovod.*"
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of one process of a GPU in order of start: int64[m] ns on the GPU's clock.

    process: its number in `Gpu.processes`. number: the N of the name, else the place. end_ns: where each ends, FOREVER
    where it is open. last_end_ns: where the last mark ends; None: it is open, or an instant. served: they are passes
    of an inference server.
    """

    process: int
    start_ns: Int64s
    end_ns: Int64s
    number: Int64s
    last_end_ns: int | None
    served: bool = False

    def __len__(self) -> int:
        return len(self.start_ns)


def steps(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int]) -> Marks | None:
    """The marks of steps, of the first pattern of `STEPS` that has any."""
    for pattern in STEPS:
        found = find(gpu, timelines, shift_ns, pattern)
        if found:
            return found
    return None


def find(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int], pattern: str) -> Marks | None:
    """Marks whose whole name fits the pattern, of the process with the most of them; None where there is none.

    Of several domains that write `step N` the one that writes most counts, of several range names likewise: numbers in
    a name do not part it. Marks of a process whose host clock is not the GPU's say nothing.
    """
    best: Marks | None = None
    for process, (recording, pid) in enumerate(gpu.processes):
        if process in gpu.off_clock:
            continue
        marks = timelines[recording].marks
        fits = rows_of(marks["name"].cat.codes.to_numpy(), wholly(marks["name"].cat.categories, pattern))
        chosen = marks[fits & (marks["pid"] == pid).to_numpy()]
        if not len(chosen):
            continue
        found = _one_kind(chosen, process, shift_ns[recording] - shift_ns[gpu.places[0][0]], pattern)
        if best is None or len(found) > len(best):
            best = found
    return best


def _one_kind(marks: pd.DataFrame, process: int, shift_ns: int, pattern: str) -> Marks:
    names = marks["name"].astype(str)
    # What a server names a pass tells what is in it; whatever that is, it is one pass.
    served = pattern == SERVED
    kind = names.str.extract("^([a-z]+)", expand=False) if served else names.str.replace(r"\d+", "", regex=True)
    kind = kind + "\n" + marks["domain"].astype(str)
    of_kind = (kind == kind.value_counts().index[0]).to_numpy()
    chosen, names = marks[of_kind], names[of_kind]
    order = np.argsort(chosen["start_ns"].to_numpy(), kind="stable")
    chosen, names = chosen.iloc[order], names.iloc[order]
    start, end = chosen["start_ns"].to_numpy(), chosen["end_ns"].to_numpy()
    is_open = chosen["open"].to_numpy()
    ends = not is_open[-1] and end[-1] > start[-1]
    number = names.str.extract(f"^{pattern}$", expand=False) if re.compile(pattern).groups else np.arange(len(names))
    return Marks(
        process=process,
        start_ns=start + shift_ns,
        end_ns=np.where(is_open | (end <= start), FOREVER, end + shift_ns),
        number=np.asarray(number, dtype=np.int64),
        last_end_ns=int(end[-1]) + shift_ns if ends else None,
        served=served,
    )


def owners(sequence: KernelSequence, marks: Marks) -> Int64s | None:
    """Mark of each kernel: the last of its process that began before its launch call did; -1: none.

    int64[n], or None where no launch call of that process is known.
    """
    mine = sequence.launched & (sequence.process == marks.process)
    if not mine.any():
        return None
    owner = np.searchsorted(marks.start_ns, sequence.call_start_ns, side="left")
    owner -= 1
    owner[~mine] = -1
    return owner


def places(sequence: KernelSequence, marks: Marks) -> Int64s:
    """The first kernel launched under each mark (where no launch is known: started after it); marks without are left
    out. Ascending places in the sequence."""
    owner = owners(sequence, marks)
    if owner is None:
        first = np.searchsorted(sequence.start_ns, marks.start_ns, side="left")
    else:
        first = first_of(owner, len(marks), len(sequence))
        first = np.minimum.accumulate(first[::-1])[::-1]
    return np.unique(first[first < len(sequence)])


def first_of(owner: Int64s, owners_count: int, none: int) -> Int64s:
    """The first place of each owner in 0..owners_count, `none` where it has none."""
    first = np.full(owners_count, none, np.int64)
    owned = np.flatnonzero(owner >= 0)[::-1]
    first[owner[owned]] = owned  # the last written is the first of its owner
    return first
