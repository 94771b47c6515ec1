"""Warm up, and time one window: how long each step took, and how much of it was waiting for input.

The device is synchronised at both ends of the window and nowhere inside. A step lasts from its start to the start of
the next one, in the host's time; the last step ends after the final synchronisation. So the step times add up to the
window exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """One timed window; all in ns. `sum(step_ns) == end_ns - start_ns`, with `start_ns` on the host's UTC clock."""

    start_ns: int
    end_ns: int
    step_ns: list[int]
    input_wait_ns: list[int]

    def __post_init__(self) -> None:
        if sum(self.step_ns) != self.end_ns - self.start_ns:
            raise AssertionError("the steps do not sum to the window")


def measure(
    turn: Callable[[], int],
    *,
    steps: int,
    synchronise: Callable[[], object],
    utc_ns: Callable[[], int] = time.time_ns,
    monotonic_ns: Callable[[], int] = time.perf_counter_ns,
    progress: Callable[[int], object] = lambda done: None,
) -> Window:
    """Time `steps` calls of `turn`, which takes one step and returns the ns that it waited for its batch.
    synchronise, utc_ns, monotonic_ns: as in `Edges`. progress: called with the number of steps done."""
    edges = Edges(steps, synchronise=synchronise, utc_ns=utc_ns, monotonic_ns=monotonic_ns)
    edges.begin()
    for done in range(1, steps + 1):
        waited_ns = turn()
        progress(done)
        edges.passed(waited_ns)
    return edges.window()


class Edges:
    """Notes when a window's steps begin and end, in ns.

    The UTC clock is read once, at the start; later times are that time plus the monotonic clock, so that setting the
    clock during the window changes nothing. synchronise: waits until the device has finished.
    """

    def __init__(
        self,
        steps: int,
        *,
        synchronise: Callable[[], object],
        utc_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._synchronise, self._utc_ns, self._monotonic_ns = synchronise, utc_ns, monotonic_ns
        self._edges_ns, self._waits_ns = [0] * (steps + 1), [0] * steps
        self._done = 0
        self._start_utc_ns = 0

    def begin(self) -> None:
        """Begin the window now."""
        self._synchronise()
        self._start_utc_ns = self._utc_ns()
        self._edges_ns[0] = self._monotonic_ns()

    def passed(self, waited_ns: int) -> None:
        """Note that a step ends now, after it waited `waited_ns` for its batch. The last step ends when the device has
        finished."""
        self._waits_ns[self._done] = waited_ns
        self._done += 1
        if self._done == len(self._waits_ns):
            self._synchronise()
        self._edges_ns[self._done] = self._monotonic_ns()

    def window(self) -> Window:
        """The window, once all its steps have ended. Raises AssertionError before that."""
        edges_ns = self._edges_ns
        if self._done != len(self._waits_ns):
            raise AssertionError(f"{self._done} of {len(self._waits_ns)} steps have ended")
        step_ns = [end - start for start, end in zip(edges_ns, edges_ns[1:], strict=False)]
        return Window(self._start_utc_ns, self._start_utc_ns + edges_ns[-1] - edges_ns[0], step_ns, self._waits_ns)


def warm_up(turn: Callable[[], int], *, steps: int, progress: Callable[[int], object]) -> None:
    """Run untimed steps, in which programs are compiled and tuned, caches filled and memory allocated."""
    for done in range(1, steps + 1):
        turn()
        progress(done)


def clock_offset_ns(instants_ns: list[list[int]], rank: int, hosts: list[str]) -> int:
    """This host's clock minus rank 0's, in ns: the median difference of the times at which both left a barrier.

    instants_ns[k][i]: rank k's UTC clock when it left barrier i. hosts[k]: rank k's host. Ranks on the same host share
    a clock, so their offset is 0.
    """
    if hosts[rank] == hosts[0]:
        return 0
    differences = sorted(mine - first for mine, first in zip(instants_ns[rank], instants_ns[0], strict=True))
    return differences[len(differences) // 2]
