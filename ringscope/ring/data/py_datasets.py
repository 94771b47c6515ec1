"""A part of a PyDataset that is itself a PyDataset."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from . import seeds


class PyDatasetPart(keras.utils.PyDataset):
    """Batches start, start + step, ... of another PyDataset; `count` of them, or None for no end.

    share: gives every rank rank 0's value, so that all ranks shuffle alike between epochs; None if nothing shuffles.
    epoch: batches per epoch, each continuing where the epoch before ended; None: all batches.
    """

    def __init__(
        self, whole: Any, start: int, step: int, count: int | None, share: Any = None, epoch: int | None = None
    ) -> None:
        super().__init__(
            workers=whole.workers,
            use_multiprocessing=whole.use_multiprocessing,
            max_queue_size=whole.max_queue_size,
        )
        self._whole, self._start, self._step, self._count, self._share = whole, start, step, count, share
        self.epoch, self._begun = epoch, 0  # number of batches in the epochs before this one

    @property
    def num_batches(self) -> int | None:
        return self._count if self.epoch is None else self.epoch

    def __getitem__(self, index: int) -> Any:
        if self._count is not None:
            index = (self._begun + index) % self._count
        return self._whole[self._start + index * self._step]

    def begin_epoch(self, number: int) -> None:
        """Set the number of the next epoch, from 0. (Keras calls on_epoch_end even before the first epoch.)"""
        self._begun = number * (self.epoch or 0)

    def on_epoch_begin(self) -> None:
        with self._alike():
            self._whole.on_epoch_begin()

    def on_epoch_end(self) -> None:
        with self._alike():
            self._whole.on_epoch_end()

    def _alike(self) -> AbstractContextManager[None]:
        return nullcontext() if self._share is None else seeds.as_on_rank_0(self._whole, self._share)
