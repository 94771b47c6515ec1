"""What is done for each GPU by itself, on two threads: numpy lets go of Python's lock for most of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

# Each more takes memory for the GPU it is at: some 100 bytes an operation.
_AT_ONCE: Final = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`function(item)` of every item, in their order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(function, items)
