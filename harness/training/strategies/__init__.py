"""Other ways to spread the work, for comparison with Horovod: one function per strategy that returns a `Trainer`.

`horovod` all-reduces; `none` trains every rank alone (the upper bound); `mirrored` is one process over all GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Trainer:
    """A model that is ready to train. turn: takes one step; (its logs, the ns that it waited for its batch)."""

    model: Any
    turn: Callable[[], tuple[Any, int]]
    samples_per_step: int  # by this process
