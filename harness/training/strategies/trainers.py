"""Strategies to spread a training over GPUs: a module for each, whose `trainer(cell, device)` returns a `Trainer`.

profiles/runs/strategies.py says what each strategy is and what it can be combined with.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell


class Unsupported(RingscopeError):
    """Raised for a cell that cannot run here at all."""


_MODULES = {
    "horovod": "ranks",
    "independent": "ranks",
    "mirrored": "mirrored",
    "multiworker": "multiworker",
    "replicas": "replicas",
    "sharded": "ranks",
    "parameter_server": "parameter_server",
    "split": "split",
    "hybrid": "split",
}


@dataclass(frozen=True, slots=True)
class Trainer:
    """A model that is ready to train. turn: takes one step; returns (its logs, the ns that it waited for its batch)."""

    model: Any
    turn: Callable[[], tuple[Any, int]]
    samples_per_step: int  # samples that this process takes in each step
    settle: Callable[[], None] = lambda: None  # waits until all steps that have begun are over
    source: Any = None  # source of the batches, in strategies that can train until an accuracy is reached
    facts: Callable[[], dict[str, Any]] = dict  # facts that only this strategy knows, asked for after the window
    # Facts that need GPU work. Not asked for after a recording, because a profiler that is stopped still records for a
    # while.
    tried: Callable[[], dict[str, Any]] = dict

    def told(self, *, recorded: bool) -> dict[str, Any]:
        """The strategy's facts about a finished run. recorded: True if a profiler recorded it."""
        return self.facts() | ({} if recorded else self.tried())


def trainer(cell: Cell, device: str) -> Trainer:
    """The trainer of the cell's strategy. device: TensorFlow's name of this process's first device."""
    made: Trainer = importlib.import_module(f".{_MODULES[cell.strategy]}", __package__).trainer(cell, device)
    return made
