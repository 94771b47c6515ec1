"""Other ways to spread the work, for comparison with Horovod: one function per strategy that returns a `Trainer`.

`horovod` all-reduces; `none` trains every rank alone (the upper bound); `mirrored` is one process over all GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Trainer:
    """What the worker's loop turns: `logs = step(next(batches))`."""

    model: Any
    step: Callable[[Any], Any]
    batches: Iterator[Any]
    samples_per_step: int  # by this process
