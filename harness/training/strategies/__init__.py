"""Ways to spread the work, beside each other: a module per way, whose `trainer(cell, device)` gives a `Trainer`.

profiles/runs/strategies.py says what each is and what it can be combined with.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell


class Unsupported(RingscopeError):
    """A cell that cannot be run here, whatever is tried."""


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


def _nothing() -> None:
    pass


def _no_facts() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Trainer:
    """A model that is ready to train. turn: takes one step; (its logs, the ns that it waited for its batch)."""

    model: Any
    turn: Callable[[], tuple[Any, int]]
    samples_per_step: int  # by this process
    settle: Callable[[], None] = _nothing  # return when every step that was begun has ended, wherever it runs
    source: Any = None  # of its batches, where an accuracy can be asked for
    facts: Callable[[], dict[str, Any]] = _no_facts  # what only this strategy knows of the run, asked after the window
    # Facts that take GPU work to know. Not after a recording: a stopped profiler goes on for a while.
    tried: Callable[[], dict[str, Any]] = _no_facts

    def told(self, *, recorded: bool) -> dict[str, Any]:
        """Facts of a run that has ended."""
        return self.facts() | ({} if recorded else self.tried())


def trainer(cell: Cell, device: str) -> Trainer:
    """The trainer of a cell's strategy; device: TensorFlow's name of this process's first device."""
    made: Trainer = importlib.import_module(f".{_MODULES[cell.strategy]}", __name__).trainer(cell, device)
    return made
