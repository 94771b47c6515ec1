"""Work for each GPU by itself, on two threads: numpy lets go of Python's lock for most of it. And the cores."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

# Each more takes memory for the GPU it is at: some 60 bytes an operation.
_AT_ONCE: Final = 2
_LARGE_ROWS: Final = 1 << 21
# Of fewer, threads wait for Python's lock, and for their own start, longer than they work.
_SMALL_ROWS: Final = 1 << 16
_WORTH_ROWS: Final = 1 << 17  # some 10 MB
_alone = False

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(function: Callable[[Item], Result], items: Iterable[Item], rows: int) -> Iterator[Result]:
    """`function(item)` of every item, in their order. rows: of the largest; large ones are worked on one by one, and so
    are small ones."""
    if _alone or not _SMALL_ROWS <= rows <= _LARGE_ROWS:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(function, items)


def spread(function: Callable[[Item], Result], items: Iterable[Item], most: int) -> Iterator[Result]:
    """As `each`, on up to `most` threads; on an error, or Ctrl-C, the rest is not waited for."""
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
    """Use one thread from now on: other processes use the other cores."""
    global _alone
    _alone = True


def usable_cpus() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def cores_of_ranks(ranks: int) -> int:
    """The number of cores that `ranks` ranks of this host may use together: a share each, or all of them the same."""
    return min(ranks * usable_cpus(), len(os.sched_getaffinity(1)))


def loaders_over_cores(workers: int, ranks: int, cores: int) -> tuple[str, str] | None:
    """Say what is wrong with the number of workers of each rank of a host, and what to do; None: cores are enough."""
    if workers <= 1 or workers * ranks <= cores:
        return None
    return (
        f"{workers} workers of the data x {ranks} ranks of this host share {cores} cores; with more workers than cores"
        " batches come later, not sooner",
        f"workers={max(1, cores // ranks)}, or more cores for each rank (Slurm: --cpus-per-task)",
    )


def release_unused(rows: int) -> None:
    """Give memory that is free back to the system. glibc keeps it, for each thread apart.

    Of small recordings (`rows` of them) it may keep it for the next one: to fetch it again takes a tenth of their time.
    """
    if rows < _WORTH_ROWS:
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
