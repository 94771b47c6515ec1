"""The warm-up of the learning rate over the first epochs of `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ..internals.frameworks import hvd
from ..models import without_loss_scale


class WarmUp(keras.callbacks.Callback):
    """Raises the learning rates linearly, from one rank's before the first step to all ranks' after the last step of
    `epochs` (Goyal et al. 2017, arXiv:1706.02677).

    The rates stay numbers, which other callbacks can set: ReduceLROnPlateau and LearningRateScheduler raise an error if
    the rate is a schedule. The warm-up overwrites, before the next step, what they set within these epochs. Steps of
    one execution (`steps_per_execution`) have one rate.
    """

    async_safe = True

    def __init__(self, optimizers: Sequence[Any], epochs: int) -> None:
        """optimizers: with the rates of all ranks."""
        super().__init__()
        self._full = [(each, float(without_loss_scale(each).learning_rate)) for each in optimizers]
        self._step: int | None = None  # steps taken so far; None before the first one of this process
        self._begun = 0
        self.epochs = epochs
        self.steps = 0  # number of steps in `epochs`; 0: not known yet

    @property
    def is_over(self) -> bool:
        return self._step is not None and self._step >= self.steps > 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begun = batch
        if self._step is None:  # not 0 if a backup was restored
            self._step = int(without_loss_scale(self._full[0][0]).iterations)
        if not self.is_over:
            self._set_rates(self._step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        was_over = self.is_over
        self._step = (self._step or 0) + batch - self._begun + 1
        if self.is_over and not was_over:
            self._set_rates(self.steps)

    def _set_rates(self, step: int) -> None:
        done = step / self.steps
        for optimizer, full in self._full:
            optimizer.learning_rate = full * (done + (1 - done) / hvd.size())
