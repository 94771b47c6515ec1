"""Work on several items at once by threads, and count cores. Threads help, since numpy mostly releases Python's
lock."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

# Number of threads. Each holds temporary arrays for its GPU, some 60 bytes per operation.
_AT_ONCE: Final = 2
_LARGE_ROWS: Final = 1 << 21
# With fewer rows, threads wait longer (for Python's lock and for their own start) than they work.
_SMALL_ROWS: Final = 1 << 16
_WORTH_ROWS: Final = 1 << 17  # this many rows of operations take some 10 MB
_alone = False

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(function: Callable[[Item], Result], items: Iterable[Item], rows: int) -> Iterator[Result]:
    """`function(item)` of every item, in order. `rows`: number of the largest item's rows. Threads are used only for
    items of medium size: large ones need too much memory, and small ones are done too soon."""
    if _alone or not _SMALL_ROWS <= rows <= _LARGE_ROWS:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(function, items)


def spread(function: Callable[[Item], Result], items: Iterable[Item], most: int) -> Iterator[Result]:
    """`function(item)` of every item, in order, by up to `most` threads. An error or Ctrl-C does not wait for the
    others."""
    if _alone or most == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(most) as pool:
        try:
            for one in [pool.submit(function, item) for item in items]:
                yield one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def alone() -> None:
    """Use one thread from now on, since other processes use the other cores."""
    global _alone
    _alone = True


def usable_cpus() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def cores_of_ranks(ranks: int) -> int:
    """The number of cores that `ranks` ranks of this host may use together, if each may use as many as this process."""
    return min(ranks * usable_cpus(), len(os.sched_getaffinity(1)))


def loaders_over_cores(workers: int, ranks: int, cores: int) -> tuple[str, str] | None:
    """(problem, advice) if a host's ranks have more data-loading workers than it has cores; None if cores suffice."""
    if workers <= 1 or workers * ranks <= cores:
        return None
    return (
        f"{ranks} ranks of this host with {workers} data-loading workers each share {cores} cores; with more workers "
        "than cores, batches come later, not sooner",
        f"workers={max(1, cores // ranks)}, or more cores for each rank (Slurm: --cpus-per-task)",
    )


def release_unused(rows: int) -> None:
    """Give freed memory, which glibc keeps for each thread, back to the system. Does nothing for small recordings
    (below _WORTH_ROWS `rows`): to get memory again would take a tenth of their time."""
    if rows < _WORTH_ROWS:
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
