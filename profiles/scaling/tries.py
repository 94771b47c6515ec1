"""What the launches of a search for a batch say of memory: those that count, and which has to be launched again.

Near the end of a GPU's memory a library may fail without a word of memory (cuDNN: `Failed to call DoRnnBackward`). So a
launch that failed counts as one that does not fit where a smaller batch fits or a larger one was out of memory, and
where it fails twice: once may have been another's fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..records import Run, RunRecord
from .remedies import memory_of
from .search import CONFIRMATIONS, Try

_ANSWERS = ("ok", "oom")
_SILENT = ("interrupted", "damaged")  # their launch is repeated


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of launches.

    tries: those that fit or do not, as they were launched. again: a batch that has failed once. stopping: launches that
    say nothing of memory, and that a search cannot go on behind.
    """

    tries: tuple[Try, ...]
    again: int | None
    stopping: tuple[RunRecord, ...]


def tried(runs: Sequence[Run]) -> Tried:
    """The same, of all launches of a search."""
    fitting = [batch(run) for run in runs if run.record.status == "ok"]
    over = [batch(run) for run in runs if run.record.status == "oom"]
    failed = Counter(batch(run) for run in runs if _failed_near(run, fitting, over))
    twice = {each for each, times in failed.items() if times >= CONFIRMATIONS}
    others = [run for run in runs if run.record.status not in (*_ANSWERS, *_SILENT)]
    return Tried(
        tuple(_try(run) for run in runs if run.record.status in _ANSWERS or (_failed(run) and batch(run) in twice)),
        min(set(failed) - twice - {*fitting, *over}, default=None),
        tuple(run.record for run in others if not _failed_near(run, fitting, over)),
    )


def batch(run: Run) -> int:
    """Of a rank."""
    return run.record.cell.per_rank_batch


def _failed(run: Run) -> bool:
    return run.record.status == "failed"


def _failed_near(run: Run, fitting: Sequence[int], over: Sequence[int]) -> bool:
    """Whether it failed where memory may be why."""
    return _failed(run) and (any(one < batch(run) for one in fitting) or any(one > batch(run) for one in over))


def _try(run: Run) -> Try:
    return Try(batch(run), memory_of(run), failure=run.record.reason if _failed(run) else "")
