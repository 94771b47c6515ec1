"""Find marks that come once a step: marks of frameworks and inference servers, and ranges of TensorFlow and Horovod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import Gpu
from ..model.marks import STEP_PREFIX
from ..model.names import rows_named
from ..model.timeline import Timeline
from .cycles import Int64s, KernelSequence

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 1 << 17  # kernels handled at once, so that their arrays fit into the CPU's cache
STEP = STEP_PREFIX + r"(\d{1,18})"
# A forward pass of an inference server: SGLang's `step[DECODE bs=32]`, vLLM's `execute_context_1(128)_generation_4(9)`
# (in older ones `execute_new_1_cached_4`), TensorRT-LLM's `[Executor] _forward_step 7: 1 ctx reqs, 4 gen reqs`.
SERVED = (
    r"step\[.*\]|execute_(?=\w*(?:\(.*)?\Z)\w*(?:context|generation|model)\w*(?:\(.*)?|execute_new_\d+_cached_\d+"
    r"|\[Executor\] _forward_step\b.*"
)
# Forward passes of a server that only read prompts (prefill) and generate nothing.
_PREFILLS = (
    r"step\[(?:EXTEND|PREFILL)\b.*\]|execute_context_\d+(?:\([\d_]+\))?_generation_0(?:\([\d_]+\))?|execute_new_\d+_cached_0"
    r"|\[Executor\] _forward_step\b.*\b0 gen reqs.*"
)
# Names that people give to the steps of an inference in JAX's and Keras's step annotations.
_OF_INFERENCE = r"(?i)(?:infer|predict|eval|valid|generat|decod|prefill|serv)[^#]*#"
# Marks of a step, the most trusted first; the group in a pattern is the step's number. `epoch 1` is no mark of a
# step.
STEPS = (
    STEP,
    r"ProfilerStep#(\d{1,18})",  # torch.profiler
    # jax.profiler.StepTraceAnnotation and Keras's callback; the NVTX range's name holds the arguments
    r"[^#]*#(?=[^#]*#\Z)(?:[^#]*,)?step_num=(\d{1,18})(?:,[^#]*)?#",
    SERVED,
    r"(?i:(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?))[ _#:-]{0,3}(\d{1,18})",
)
# TensorFlow's ranges have names like `#edge_name=edge_3_OptionalHasValue#`; ITERATOR_GET_NEXT occurs with host feeds
# only.
OPTIONAL_HAS_VALUE = r".*_OptionalHasValue#"
ITERATOR_GET_NEXT = r".*_IteratorGetNext#"
# The range that torch.profiler writes around each call of an optimizer.
OPTIMIZER = r"Optimizer\.step#.*"
HOROVOD = r"Horovod.*"
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of steps of one process of a GPU in order of start: int64[m] ns on the GPU's clock.

    `process`: index into `Gpu.processes`. `number`: the step's number in the mark's name, else 0, 1, 2... `end_ns`:
    FOREVER for a mark that has no end or is an instant. `last_end_ns`: end of the last mark; None if it has none.
    `served`: True for steps of an inference. `decodes`: False if every mark is a pass that only reads prompts.
    """

    process: int
    start_ns: Int64s
    end_ns: Int64s
    number: Int64s
    last_end_ns: int | None
    served: bool = False
    decodes: bool = True

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def steps_each(self) -> int:
        """The number of steps that one mark stands for: the median difference between the numbers of successive
        marks."""
        return max(1, int(np.median(np.diff(self.number)))) if len(self) > 2 else 1


def steps(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int]) -> Marks | None:
    """The marks that match the first pattern of `STEPS` for which there are marks; None if there are none."""
    for pattern in STEPS:
        found = find(gpu, timelines, shift_ns, pattern)
        if found:
            return found
    return None


def find(gpu: Gpu, timelines: Sequence[Timeline], shift_ns: Sequence[int], pattern: str) -> Marks | None:
    """Marks whose whole name matches the pattern, from the process with most of them; None if there are none.

    Only marks of the most frequent NVTX domain and range name are taken; names that differ only in numbers count
    as one name. Processes whose host clock does not match the GPU's are skipped.
    """
    best: Marks | None = None
    for process, (recording, pid) in enumerate(gpu.processes):
        if process in gpu.off_clock:
            continue
        marks = timelines[recording].marks
        rows = rows_named(marks, pattern, pid, whole=True)
        if not len(rows):
            continue
        found = _one_kind(marks, rows, process, shift_ns[recording] - shift_ns[gpu.places[0][0]], pattern)
        if best is None or len(found) > len(best):
            best = found
    return best


def _one_kind(marks: pd.DataFrame, rows: Int64s, process: int, shift_ns: int, pattern: str) -> Marks:
    """The marks of the most frequent domain and name among these rows; of several, those of the earliest."""
    # A server's names tell the content of a pass; all of them count as one name.
    served = pattern == SERVED
    code, names = _used(marks["name"].cat, rows)
    kinds: dict[str, int] = {}
    kind = np.array([kinds.setdefault(_kind(name, served), len(kinds)) for name in names])[code]
    domain, domains = _used(marks["domain"].cat, rows)
    kind = kind * len(domains) + domain
    met, first, count = np.unique(kind, return_index=True, return_counts=True)
    most = met[np.lexsort((first, -count))[0]]
    mine = np.flatnonzero(kind == most)
    mine = mine[np.argsort(marks["start_ns"].to_numpy()[rows[mine]], kind="stable")]
    start, end, is_open = (marks[column].to_numpy()[rows[mine]] for column in ("start_ns", "end_ns", "open"))
    ends = not is_open[-1] and end[-1] > start[-1]
    met_names = np.unique(code[mine]).tolist()
    number = np.arange(len(mine))
    if re.compile(pattern).groups:
        number = np.array([_number(pattern, name) for name in names], np.int64)[code[mine]]
        alone = _not_again(number, start, end)
        number, start, end, is_open = (each[alone] for each in (number, start, end, is_open))
    return Marks(
        process=process,
        start_ns=start + shift_ns,
        end_ns=np.where(is_open | (end <= start), FOREVER, end + shift_ns),
        number=number,
        last_end_ns=int(end[-1]) + shift_ns if ends else None,
        served=served or all(re.match(_OF_INFERENCE, names[one]) for one in met_names),
        decodes=not all(re.fullmatch(_PREFILLS, names[one]) for one in met_names),
    )


def _not_again(number: Int64s, start: Int64s, end: Int64s) -> NDArray[np.bool_]:
    """bool per mark, in order of start: False for a mark that begins within an earlier one of its number, as marks of a
    second thread and marks recorded twice do."""
    order = np.lexsort((start, number))
    again = np.zeros(len(order), bool)
    same = number[order[1:]] == number[order[:-1]]
    inside = (start[order[1:]] < end[order[:-1]]) | (start[order[1:]] == start[order[:-1]])
    again[order[1:]] = same & inside
    return ~again


def _used(texts: Any, rows: Int64s) -> tuple[Int64s, list[str]]:
    """Return each row's index into the list of distinct texts, and that list."""
    used, code = np.unique(texts.codes.to_numpy()[rows], return_inverse=True)
    return code, texts.categories[used].tolist()


def _kind(name: str, served: bool) -> str:
    """The name without its numbers; for a server's pass only the name's first word."""
    if served:
        word = re.match(r"\[?[A-Za-z]+", name)
        return word[0] if word else ""
    return re.sub(r"\d+", "", name)


def _number(pattern: str, name: str) -> int:
    """The step number in a mark's name: the group of the pattern."""
    found = re.fullmatch(pattern, name)
    assert found is not None  # find() selected the name by this pattern
    return int(found[1])


def owners(sequence: KernelSequence, marks: Marks) -> NDArray[np.int32] | None:
    """For each kernel, the index of its mark: the process's last mark that began before the kernel's launch call;
    -1: none.

    int32[n], or None if no launch call of the marks' process is known.
    """
    mine = sequence.launched & (sequence.process == marks.process)
    if not mine.any():
        return None
    owner = np.empty(len(sequence), np.int32)
    for first in range(0, len(owner), _BLOCK):
        block = slice(first, first + _BLOCK)
        owner[block] = np.searchsorted(marks.start_ns, sequence.call_start_ns[block], side="left") - 1
    owner[~mine] = -1
    return owner


def places(sequence: KernelSequence, marks: Marks) -> Int64s:
    """The places of the first kernel launched under each mark, ascending; marks without a kernel are left out. If no
    launch call is known, the first kernel started after the mark's start counts."""
    owner = owners(sequence, marks)
    if owner is None:
        first = np.searchsorted(sequence.start_ns, marks.start_ns, side="left")
    else:
        first = first_of(owner, len(marks), len(sequence))
        first = np.minimum.accumulate(first[::-1])[::-1]
    return np.unique(first[first < len(sequence)])


def last_ends(sequence: KernelSequence, owner: NDArray[np.signedinteger[Any]], owners_count: int, none: int) -> Int64s:
    """For each owner in 0..owners_count, the latest end of its kernels in ns; `none` for an owner without kernels."""
    last = np.full(owners_count, none, np.int64)
    for begin in range(0, len(owner), _BLOCK):
        owned = begin + np.flatnonzero(owner[begin : begin + _BLOCK] >= 0)
        np.maximum.at(last, owner[owned], sequence.end_ns[owned])
    return last


def first_of(owner: NDArray[np.signedinteger[Any]], owners_count: int, none: int) -> Int64s:
    """For each owner in 0..owners_count, the place of its first kernel; `none` for an owner without kernels."""
    first = np.full(owners_count, none, np.int64)
    for begin in reversed(range(0, len(owner), _BLOCK)):
        owned = begin + np.flatnonzero(owner[begin : begin + _BLOCK] >= 0)[::-1]
        first[owner[owned]] = owned  # written from last to first, so that the first place stays
    return first
