"""Warm-up and one timed window around an injected clock: what a step took, and how much of it waited for input.

The accelerator is synchronised at the two edges of the window and nowhere inside it: a step's time is the host's time
from one step's beginning to the next one's, and the last step also carries the final synchronisation. So the steps sum
exactly to the window, on every device.
"""

from __future__ import annotations

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
    utc_ns: Callable[[], int],
    monotonic_ns: Callable[[], int],
    progress: Callable[[int], object] = lambda done: None,
) -> Window:
    """Time `steps` calls of `turn`, which takes one step and returns the ns that it waited for its batch.

    One clock discipline: UTC is read once, at the start, and everything after is the monotonic clock laid on it, so a
    clock that is set during the window cannot stretch it.
    """
    edges_ns, waits_ns = [0] * (steps + 1), [0] * steps
    synchronise()
    start_utc_ns = utc_ns()
    edges_ns[0] = monotonic_ns()
    for done in range(steps):
        waits_ns[done] = turn()
        progress(done + 1)
        if done + 1 == steps:
            synchronise()
        edges_ns[done + 1] = monotonic_ns()
    step_ns = [end - start for start, end in zip(edges_ns, edges_ns[1:], strict=False)]
    return Window(start_utc_ns, start_utc_ns + edges_ns[-1] - edges_ns[0], step_ns, waits_ns)


def warm_up(turn: Callable[[], int], *, steps: int, progress: Callable[[int], object]) -> None:
    """Untimed steps: compilation, autotuning, caches, the memory allocator's growth."""
    for done in range(steps):
        turn()
        progress(done + 1)


def clock_offset_ns(instants_ns: list[list[int]], rank: int, hosts: list[str]) -> int:
    """This host's clock minus rank 0's: the median over barriers of the difference between the instants they were left.

    `instants_ns[k][i]`: rank k's UTC clock as it left barrier i. Ranks of one host share a clock: 0.
    """
    if hosts[rank] == hosts[0]:
        return 0
    differences = sorted(mine - first for mine, first in zip(instants_ns[rank], instants_ns[0], strict=True))
    return differences[len(differences) // 2]
