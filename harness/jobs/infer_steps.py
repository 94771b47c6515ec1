"""One of the steps in which `ringscope infer` measures, and constants that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

START_S = 8.0  # seconds to import TensorFlow and load a model on two cores
LIMIT_S = 300.0  # seconds allowed for a start: a first import from a cold disk takes a minute


@dataclass(frozen=True, slots=True)
class Step:
    """A step of `infer`. planned_s: expected seconds, for the estimate of the time left."""

    words: str
    planned_s: float
    run: Callable[[], None]
