"""Run Keras's own `model.fit` on a source's batches, and time one window of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import keras

from ..windows import Edges, Window


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """A source's batches without end, in a form that `fit` takes without a copy."""

    num_batches = None

    def __init__(self, arrays: Iterator[tuple[Any, Any]]) -> None:
        super().__init__()
        self._arrays = arrays
        self._waited_ns = 0

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        began_ns = time.perf_counter_ns()
        batch = next(self._arrays)
        self._waited_ns += time.perf_counter_ns() - began_ns
        return batch

    def waited_ns(self) -> int:
        """The ns spent waiting for batches since the last call."""
        waited_ns, self._waited_ns = self._waited_ns, 0
        return waited_ns


class Reports(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells how many steps are done. It overrides only the beginning of a step, because a callback for the end makes
    `fit` wait for the step's loss."""

    def __init__(self, done: Callable[[int], None]) -> None:
        super().__init__()
        self._done = done

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._done(batch)


class Timed(Reports):
    """Times all steps of an epoch: the window begins before the first batch and ends with the epoch. all_idle: waits
    for all processes and their devices. synchronise: waits for this process's devices."""

    def __init__(
        self,
        done: Callable[[int], None],
        steps: int,
        batches: Batches,
        all_idle: Callable[[], object],
        synchronise: Callable[[Any], object],
    ) -> None:
        super().__init__(done)
        self._batches, self._all_idle = batches, all_idle
        self._edges = Edges(steps, synchronise=lambda: synchronise(self.model))
        self.logs: dict[str, float] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._all_idle()
        self._batches.waited_ns()
        self._edges.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_begin(batch)
        if batch:
            self._edges.passed(self._batches.waited_ns())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._edges.passed(self._batches.waited_ns())
        self.logs = dict(logs)

    def window(self) -> Window:
        return self._edges.window()


def fit(model: Any, batches: Batches, steps: int, callback: Reports) -> None:
    """Train one epoch of `steps` steps."""
    model.fit(batches, epochs=1, steps_per_epoch=steps, verbose=0, shuffle=False, callbacks=[callback])


def versions(backend: str) -> dict[str, str]:
    return {"keras": keras.__version__, backend: metadata.version(backend)}
