"""Sort the launches of a batch search: into launches that show whether a batch fits, and a batch to launch again.

When a GPU's memory is nearly full, a library may fail without naming memory (cuDNN: `Failed to call DoRnnBackward`). So
the batch of a failed launch counts as not fitting if a smaller batch fits or a larger batch does not, and if this batch
failed twice: a single failure may have another cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..runs.records import Run, RunRecord
from .remedies import memory_of
from .search import CONFIRMATIONS, Try

_ANSWERS = ("ok", "oom")
_SILENT = ("interrupted", "damaged")  # statuses of launches that are repeated


@dataclass(frozen=True, slots=True)
class Tried:
    """The launches of a search, sorted.

    tries: launches that show whether their batch fits, in their order. again: a batch to launch again, because it
    failed once. stopping: failed launches that show nothing about memory, and end the search."""

    tries: tuple[Try, ...]
    again: int | None
    stopping: tuple[RunRecord, ...]


def tried(runs: Sequence[Run]) -> Tried:
    """Sort all launches of a search."""
    fitting = [_batch(run) for run in runs if run.record.status == "ok"]
    over = [_batch(run) for run in runs if run.record.status == "oom"]

    def may_be_memory(run: Run) -> bool:
        near = _batch(run) > min(fitting, default=math.inf) or _batch(run) < max(over, default=0)
        return run.record.status == "failed" and near

    failed = Counter(_batch(run) for run in runs if may_be_memory(run))
    twice = {batch for batch, times in failed.items() if times >= CONFIRMATIONS}
    counting = [run for run in runs if run.record.status in _ANSWERS or (may_be_memory(run) and _batch(run) in twice)]
    others = [run for run in runs if run.record.status not in (*_ANSWERS, *_SILENT)]
    return Tried(
        tuple(map(_try, counting)),
        min(set(failed) - twice - {*fitting, *over}, default=None),
        tuple(run.record for run in others if not may_be_memory(run)),
    )


def _batch(run: Run) -> int:
    return run.record.cell.per_rank_batch


def _try(run: Run) -> Try:
    return Try(_batch(run), memory_of(run), failure=run.record.reason if run.record.status == "failed" else "")
