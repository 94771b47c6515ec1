"""Detect traces from which events were removed, by gaps in the consecutive numbers that PyTorch gave to events.

The profiler numbers all events (`Ev Idx`) and all operators (`External id`). In 50 complete traces at most one
number in 25 was not followed by the next number. If events were removed evenly, the share of numbers without a
successor is the share of removed events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...model.operations import LOST_SHARE
from . import events as chrome
from .events import Event

_LEAST: Final = 100  # fewer numbers give no reliable share
_MOST: Final = 0.99  # below 1, since some events are there
_OPERATORS: Final = ("cpu_op", "operator", "user_annotation")


class Numbers:
    """Collects the numbers of a trace's events from its pieces."""

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
        """A lower bound of the share of events that were removed; 0.0 if it is below a tenth or cannot be told."""
        shares = [share for parts in (self._events, self._operators) if (share := _holes(parts)) is not None]
        least = min(shares, default=0.0)
        return min(least, _MOST) if least >= LOST_SHARE else 0.0


def _holes(parts: list[NDArray[np.int64]]) -> float | None:
    """The share of the numbers that are not followed by the next number; None if there are too few numbers."""
    numbers = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
    numbers = numbers[numbers > 0]
    return float((np.diff(numbers) > 1).mean()) if len(numbers) >= _LEAST else None
