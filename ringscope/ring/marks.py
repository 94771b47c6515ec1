"""NVTX ranges in the domain `ringscope`, which mark a training in a recording.

`step N`, `wait input` and `rank k of n` let a recording separate waiting for data from Python's own time. `batch N`
shows which copies bring the batch of step N, `fed by PyDataset` shows what makes the batches, and `paused N ns: why`
shows that an elastic training has continued after a pause. Without a profiler the domain does nothing, so the marks
cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol

from profiles.model import marks

from .lost import restart


class Marks(Protocol):
    """Writes marks into a recording."""

    def step(self, number: int) -> AbstractContextManager[Any]: ...

    def batch(self, number: int) -> AbstractContextManager[Any]: ...

    def wait_input(self) -> AbstractContextManager[Any]: ...

    def rank(self, rank: int, size: int) -> None: ...

    def fed_by(self, loader: str) -> None: ...

    def paused(self, ns: int, why: str) -> None: ...


class NoMarks:
    """Writes no marks."""

    def step(self, number: int) -> AbstractContextManager[Any]:
        return nullcontext()

    def batch(self, number: int) -> AbstractContextManager[Any]:
        return nullcontext()

    def wait_input(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def rank(self, rank: int, size: int) -> None:
        pass

    def fed_by(self, loader: str) -> None:
        pass

    def paused(self, ns: int, why: str) -> None:
        pass


@cache
def nvtx_marks() -> Marks:
    """This process's writer of marks; NoMarks if the package nvtx is not installed."""
    try:
        return NvtxMarks()
    except ImportError:
        return NoMarks()


def mark_pause() -> None:
    """Mark that an elastic training continues after a pause, if there was one that is not marked yet."""
    pause = restart.go_on()
    if pause:
        nvtx_marks().paused(*pause)


class NvtxMarks:
    """Writes ranges on the calling thread. `step` carries the step's number, from 0 at the first warm-up step."""

    def __init__(self) -> None:
        import nvtx

        self._domain = nvtx.get_domain(marks.DOMAIN)
        self._wait = self._domain.get_event_attributes(message=marks.WAIT_INPUT)

    def step(self, number: int) -> AbstractContextManager[None]:
        return self._range(self._domain.get_event_attributes(message=marks.step(number)))

    def batch(self, number: int) -> AbstractContextManager[None]:
        """A range around the calls that copy the batch of step `number`."""
        return self._range(self._domain.get_event_attributes(message=marks.batch(number)))

    def wait_input(self) -> AbstractContextManager[None]:
        return self._range(self._wait)

    def rank(self, rank: int, size: int) -> None:
        """Write the rank into the recording. Call this repeatedly, because only marks after the profiler's start are
        recorded."""
        with self._range(self._domain.get_event_attributes(message=str(marks.Rank(rank, size)))):
            pass

    def fed_by(self, loader: str) -> None:
        """Write where the batches come from, one of `profiles.model.marks.LOADERS`. Call this repeatedly,
        like `rank`."""
        with self._range(self._domain.get_event_attributes(message=marks.FED_BY + loader)):
            pass

    def paused(self, ns: int, why: str) -> None:
        """Mark that an elastic training continues now, after a pause of `ns`."""
        with self._range(self._domain.get_event_attributes(message=marks.paused(ns, why))):
            pass

    @contextmanager
    def _range(self, attributes: object) -> Iterator[None]:
        self._domain.push_range(attributes)
        try:
            yield
        finally:
            self._domain.pop_range()
