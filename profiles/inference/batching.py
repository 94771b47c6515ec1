"""Simulate, event by event, how a server with one model gathers requests into batches.

A batch starts when it holds the most requests that a batch may hold (b), or when its waiting limit (t) is over,
whichever comes first, but never before the model has finished the previous batch. Servers differ in when the wait
begins to count: see `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
# The instant from which a server counts the waiting limit:
# first: the arrival of the batch's first request (TensorFlow Serving);
# taken: the instant at which the free model takes that request;
# windows: the instant at which the model is free, and again the end of each limit in which no request came (LitServe).
RULES: Final = ("first", "taken", "windows")


@dataclass(frozen=True, slots=True)
class Batches:
    """The outcome of a simulation: when each request was answered, and the size of each batch."""

    done_ns: Times  # int64[requests] ns, in order of arrival
    sizes: Times  # int64[batches], in requests


def simulate(
    arrivals_ns: Times, service_ns: Callable[[int], int], *, most: int, wait_ns: int, rule: str = "first"
) -> Batches:
    """Let one model serve the requests in order of arrival.

    `arrivals_ns`: ascending. `service_ns`: gives the time of a batch in ns for its size. `most`: the largest batch (b),
    at least 1. `wait_ns`: the waiting limit (t), at least 0. Raises ValueError for values outside these limits.
    """
    if most < 1 or wait_ns < 0 or rule not in RULES or np.any(np.diff(arrivals_ns) < 0):
        raise ValueError(
            f"arrivals must ascend; there is no batching rule {rule!r} with batches of {most} within {wait_ns} ns"
        )
    count, first, free = len(arrivals_ns), 0, 0
    done, sizes = np.empty(count, np.int64), []
    while first < count:
        leaves = _leaves(arrivals_ns, first, free, most, wait_ns, rule)
        here = int(np.searchsorted(arrivals_ns, leaves, side="right"))
        last = min(here, first + most)
        free = leaves + service_ns(last - first)
        done[first:last] = free
        sizes.append(last - first)
        first = last
    return Batches(done, np.array(sizes, np.int64))


def _leaves(arrivals_ns: Times, first: int, free: int, most: int, wait_ns: int, rule: str) -> int:
    """The time at which the batch that begins with request `first` starts, in ns."""
    came = int(arrivals_ns[first])
    taken = max(free, came)
    if most == 1:
        return taken
    since = came if rule == "first" else taken
    if rule == "windows" and wait_ns and came > free:
        since = free + (came - free) // wait_ns * wait_ns
    until = max(since + wait_ns, taken)
    full = int(arrivals_ns[first + most - 1]) if first + most <= len(arrivals_ns) else until
    return min(until, max(full, taken))


def service_times(seen_ns: Mapping[int, int]) -> Callable[[int], int]:
    """A function from batch size to service time in ns: linear between the sizes in `seen_ns`, constant beyond them."""
    sizes = sorted(seen_ns)
    if not sizes:
        raise ValueError("the server reported no batch size")
    return lambda size: round(float(np.interp(size, sizes, [seen_ns[one] for one in sizes])))


def poisson(per_s: float, seconds: float, seed: int) -> Times:
    """Arrival times of a Poisson process with rate `per_s`, from 0 to `seconds`, in ns."""
    rng = np.random.default_rng(seed)
    found: list[NDArray[np.float64]] = []
    at = 0.0
    while at < seconds:
        some = at + np.cumsum(rng.exponential(1 / per_s, max(16, round(per_s * seconds / 4))))
        found.append(some)
        at = float(some[-1])
    arrivals = np.concatenate(found)
    return np.rint(arrivals[arrivals < seconds] * 1e9).astype(np.int64)
