"""Room for batches on a host without a GPU, to try the staging: ringscope.ring.feed.pinned.Slot in host memory."""

from __future__ import annotations

import numpy as np

from ringscope.ring.feed import dlpack
from ringscope.ring.feed.carriers import Array, Batch, Carried
from ringscope.ring.feed.slots import Pool, Views

ALIGNMENT = 64  # of a tensor's memory, for TensorFlow's CPU kernels


class HostSlot:
    """A pinned.Slot whose steps are done when they return."""

    def __init__(self) -> None:
        self._memory: list[Array] = []
        self._views = Views((dlpack.CPU, 0))
        self._batch: Batch

    def fill(self, batch: Batch) -> None:
        self._batch = batch

    def bring(self, number: int) -> None:
        for place, array in enumerate(self._batch.arrays):
            if place == len(self._memory) or self._memory[place].nbytes < array.nbytes:
                self._memory[place : place + 1] = [_aligned(array.nbytes)]
            self._memory[place][: array.nbytes] = array.reshape(-1).view(np.uint8)

    def tensors(self) -> Carried:
        pairs = zip(self._memory, self._batch.arrays, strict=False)
        return self._batch.carried([self._views.tensor(memory.ctypes.data, array) for memory, array in pairs])

    def launched(self) -> None:
        pass

    def wait_until_free(self) -> None:
        pass


def _aligned(count: int) -> Array:
    memory = np.empty(count + ALIGNMENT, np.uint8)
    return memory[-memory.ctypes.data % ALIGNMENT :][:count]


host_pool = Pool(HostSlot)
