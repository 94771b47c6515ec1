"""A step of `infer`, and what the steps share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

START_S = 8.0  # TensorFlow's import and a model, on two cores
LIMIT_S = 300.0  # for a start: a first import on a cold disk takes a minute


@dataclass(frozen=True, slots=True)
class Step:
    """`planned_s`: about how long it takes, for the time left."""

    words: str
    planned_s: float
    run: Callable[[], None]
