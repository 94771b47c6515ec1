"""NVTX ranges in the domain `ringscope`, which mark a training in a recording.

`step N`, `wait input` and `rank k of n` let a recording separate waiting for data from Python's own time. `batch N`
shows which copies bring the batch of step N, `fed by PyDataset` shows what makes the batches, and `paused N ns: why`
shows that an elastic training has continued after a pause. Without a profiler the domain does nothing, so the marks
cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from profiles.model import marks

from ..places import ranges
from .lost import restart


def step(number: int) -> AbstractContextManager[None]:
    """A range around a step; `number` is 0 for the first warm-up step."""
    return _range(marks.step(number))


def batch(number: int) -> AbstractContextManager[None]:
    """A range around the calls that copy the batch of step `number`."""
    return _range(marks.batch(number))


def wait_input() -> AbstractContextManager[None]:
    """A range around waiting for the next batch."""
    return _range(marks.WAIT_INPUT)


def mark_rank(rank: int, size: int) -> None:
    """Write the rank into the recording. Call this repeatedly, because only marks after the profiler's start are
    recorded."""
    _mark(str(marks.Rank(rank, size)))


def mark_loader(loader: str) -> None:
    """Write where the batches come from, one of `profiles.model.marks.LOADERS`. Call this repeatedly, like
    `mark_rank`."""
    _mark(marks.FED_BY + loader)


def mark_pause() -> None:
    """Mark that an elastic training continues after a pause, if there was one that is not marked yet."""
    pause = restart.go_on()
    if pause:
        _mark(marks.paused(*pause))


def _mark(name: str) -> None:
    with _range(name):
        pass


@contextmanager
def _range(name: str) -> Iterator[None]:
    """An NVTX range on the calling thread."""
    writer = ranges.nvtx()
    begun = writer.begin(name)
    try:
        yield
    finally:
        writer.end(begun)
