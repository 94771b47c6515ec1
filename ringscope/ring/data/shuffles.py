"""Count how often each shuffle of a data set has begun, because that decides the order of its elements.

If one rank alone looked at a batch before `fit`, say to plot it, its order would differ from the other ranks', and the
ranks' shares of an epoch would overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf
from ..internals.laid_over import laid_for_good
from .pipeline import inputs, is_cache, is_shuffle, operations

BEGUN, KEPT = "begun_by_ring", "begun_for_a_cache_by_ring"  # names of the attributes that ring sets on a data set
Begun = list[tuple[int, int]]
"""For each shuffle, last first: (number of beginnings, number of beginnings that filled a cache after the shuffle)."""


def count_beginnings() -> None:
    """Make every data set count each time that it is iterated."""
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
    """Begin this rank's shuffles until they have begun as often as on the rank where they began most often.
    everybodys: a rank's value -> the values of all ranks. Raises RingscopeError if only some ranks have filled a
    cache."""
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
            # The iterator is not read, so the data sets before the shuffle do not begin.
            tf.data.Dataset.__iter__.__wrapped__(shuffle)
        vars(shuffle)[BEGUN] = most


def of(dataset: Any) -> list[Any]:
    """The shuffles in a data set's pipeline, last first."""
    return list({id(each): each for each in operations(dataset) if is_shuffle(each)}.values())


def _beginning(dataset: Any, *, is_kept: bool) -> list[tuple[Any, bool]]:
    """(shuffle, True if it fills a cache) for each shuffle that begins when the data set begins. A cache that has begun
    before counts as full."""
    if is_cache(dataset):
        if vars(dataset).get(BEGUN):
            return []
        vars(dataset)[BEGUN], is_kept = 1, True
    found = [(dataset, is_kept)] if is_shuffle(dataset) else []
    return found + [each for below in inputs(dataset) for each in _beginning(below, is_kept=is_kept)]
