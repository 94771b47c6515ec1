"""How often each shuffle of a data set has begun, which decides the next order of its elements.

If one rank alone looked at a batch before `fit`, say to draw it, its orders would differ from the other ranks', and the
ranks' shares of an epoch would overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf
from ..internals.laid_over import laid_for_good
from .pipeline import inputs, is_cache, is_shuffle, operations

__all__ = ["begun", "catch_up", "count_beginnings"]

BEGUN, KEPT = "begun_by_ring", "begun_for_a_cache_by_ring"  # a data set's attributes
Begun = list[tuple[int, int]]
"""A pair for each shuffle, the last first: how often it began, and how many of these starts filled a cache after it."""


def count_beginnings() -> None:
    """Have every data set that is gone through count it."""
    laid_for_good(tf.data.Dataset, "__iter__", _counted)


def _counted(begin: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    def counted(dataset: Any) -> Iterator[Any]:
        if tf.executing_eagerly():
            for shuffle, is_kept in _beginning(dataset, is_kept=False):
                vars(shuffle)[BEGUN] = vars(shuffle).get(BEGUN, 0) + 1
                vars(shuffle)[KEPT] = vars(shuffle).get(KEPT, 0) + is_kept
        return begin(dataset)

    return counted


def begun(dataset: Any) -> Begun:
    return [(vars(each).get(BEGUN, 0), vars(each).get(KEPT, 0)) for each in of(dataset)]


def catch_up(dataset: Any, everybodys: Callable[[Begun], list[Begun]]) -> None:
    """Have this rank's shuffles begin as often as on the rank that has gone through the data most often.

    everybodys: a rank's value -> the values of all. Raises RingscopeError if only some ranks have filled a cache.
    """
    own = of(dataset)
    if not own:
        return
    said = everybodys(begun(dataset))
    if len({str([kept for _, kept in counts]) for counts in said}) > 1:
        raise RingscopeError(
            "the ranks have not gone through the shuffled and cached training data equally often before fit, so their "
            "shares would overlap; iterate over it equally often on all ranks, or over a separate data set"
        )
    for place, shuffle in enumerate(own):
        most = max(counts[place][0] for counts in said)
        for _ in range(most - vars(shuffle).get(BEGUN, 0)):
            # Nothing is read, and so none of those before it begins.
            tf.data.Dataset.__iter__.__wrapped__(shuffle)
        vars(shuffle)[BEGUN] = most


def of(dataset: Any) -> list[Any]:
    """The shuffles that a data set comes through, the last first."""
    return list({id(each): each for each in operations(dataset) if is_shuffle(each)}.values())


def _beginning(dataset: Any, *, is_kept: bool) -> list[tuple[Any, bool]]:
    """The shuffles that begin where the data set does, with whether a cache is filled by them. One that has begun
    before is taken for full."""
    if is_cache(dataset):
        if vars(dataset).get(BEGUN):
            return []
        vars(dataset)[BEGUN], is_kept = 1, True
    found = [(dataset, is_kept)] if is_shuffle(dataset) else []
    return found + [each for below in inputs(dataset) for each in _beginning(below, is_kept=is_kept)]
