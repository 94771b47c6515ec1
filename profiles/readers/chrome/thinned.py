"""Traces that somebody took events out of: the numbers which PyTorch gave to events one after another have holes.

The profiler numbers all events (`Ev Idx`), and all operators (`External id`). Of 50 whole traces at most one in 25
numbers is not followed by the next one; where events were left out evenly, a number's next is missing as often as
an event is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...model.operations import LOST_SHARE
from . import events as chrome
from .events import Event

_LEAST: Final = 100  # numbers, of which a share can be told
_MOST: Final = 0.99  # some are there
_OPERATORS: Final = ("cpu_op", "operator", "user_annotation")


class Numbers:
    """The numbers of a trace's events, piece by piece."""

    def __init__(self) -> None:
        self._events: list[NDArray[np.int64]] = []
        self._operators: list[NDArray[np.int64]] = []

    def add(self, events: Iterable[Event]) -> None:
        told = [(event.cat, event.args) for event in events if event.ph == "X" and event.args is not None]
        self._events.append(chrome.integers([args.index for _, args in told]))
        operators = [args for category, args in told if isinstance(category, str) and category.lower() in _OPERATORS]
        external = [args.older_external if args.external is None else args.external for args in operators]
        self._operators.append(chrome.integers(external))

    def left_out(self) -> float:
        """The share of the events that was left out, at least; 0.0 where it is under a tenth, or cannot be told."""
        shares = [share for parts in (self._events, self._operators) if (share := _holes(parts)) is not None]
        least = min(shares, default=0.0)
        return min(least, _MOST) if least >= LOST_SHARE else 0.0


def _holes(parts: list[NDArray[np.int64]]) -> float | None:
    """The share of the numbers whose next is missing; None: too few."""
    numbers = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
    numbers = numbers[numbers > 0]
    return float((np.diff(numbers) > 1).mean()) if len(numbers) >= _LEAST else None
