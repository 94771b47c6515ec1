"""Slots: buffers for one batch each, in pinned memory and on a GPU."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from .. import marks
from . import dlpack
from .carriers import Array, Batch, Carried
from .cuda import Gpu
from .pinned import WRITERS, Slot, write

TURN_BYTES_PER_S = 40e9  # bytes per s, somewhat less than copies to one GPU alone reach (PCIe 5 x16: 54 GB/s)


class Views:
    """TensorFlow tensors over a slot's memory. Each view is kept, because its DLPack structure must live to the end of
    the process."""

    def __init__(self, device: tuple[int, int]) -> None:
        self._device = device
        self._views: dict[tuple[int, tuple[int, ...], Any], dlpack.View] = {}

    def tensor(self, address: int, like: Array) -> Any:
        key = address, like.shape, like.dtype
        if key not in self._views:
            self._views[key] = dlpack.View(address, like.shape, like.dtype, self._device)
        # A new tensor each time, because TensorFlow may hold a cached copy of the old one, with an old batch.
        return self._views[key].tensor()


class GpuSlot:
    """A pinned.Slot: for each array of a batch a pinned buffer and a device buffer, which grow as needed."""

    def __init__(self, gpu: Gpu, writers: Executor) -> None:
        self._gpu, self._writers = gpu, writers
        self._host: list[Array] = []  # bytes
        self._addresses: list[int] = []
        self._views = Views((dlpack.CUDA, gpu.tensorflow_id))
        self._free, self._copied = gpu.event(), gpu.event()
        self._batch: Batch

    def fill(self, batch: Batch) -> None:
        self._gpu.use()
        for place, array in enumerate(batch.arrays):
            self._make_room(place, array.nbytes)
        write(self._host, [array.reshape(-1).view(np.uint8) for array in batch.arrays], self._writers)
        self._batch = batch

    def _make_room(self, place: int, count: int) -> None:
        """Replace buffers that are too small. The old ones are never freed, because a queued step may still read
        them."""
        if place == len(self._host):
            self._host.append(self._gpu.pinned((count,), np.dtype(np.uint8)))
            self._addresses.append(self._gpu.allocate(count))
        elif (held := self._host[place].nbytes) < count:
            self._host[place] = self._gpu.pinned((max(count, 2 * held),), np.dtype(np.uint8))
            self._addresses[place] = self._gpu.allocate(max(count, 2 * held))

    def bring(self, number: int) -> None:
        driver, stream, arrays = self._gpu.driver, self._gpu.stream, self._batch.arrays
        self._gpu.use()
        if not driver.is_done(self._free):
            driver.cuEventSynchronize(self._free)
            # Ranks step together, and four simultaneous copies run at 38 to 46 GB/s each, so the GPUs of a host take
            # turns.
            time.sleep(self._gpu.ordinal * sum(array.nbytes for array in arrays) / TURN_BYTES_PER_S)
        with marks.batch(number):
            for address, host, array in zip(self._addresses, self._host, arrays, strict=False):
                driver.cuMemcpyHtoDAsync_v2(
                    ctypes.c_uint64(address), ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(array.nbytes), stream
                )
        driver.cuEventRecord(self._copied, stream)
        driver.cuEventSynchronize(self._copied)

    def tensors(self) -> Carried:
        pairs = zip(self._addresses, self._batch.arrays, strict=False)
        return self._batch.carried([self._views.tensor(address, array) for address, array in pairs])

    def launched(self) -> None:
        # The event covers all work launched in the context so far, on any of TensorFlow's streams.
        self._gpu.driver.cuCtxRecordEvent(self._gpu.context, self._free)

    def wait_until_free(self) -> None:
        self._gpu.use()
        self._gpu.driver.cuEventSynchronize(self._free)


class Pool:
    """Slots that no feed uses now. Their memory is never freed, so later feeds use them again."""

    def __init__(self, make: Callable[[], Slot]) -> None:
        self._make, self._idle = make, deque[Slot]()

    def take(self, count: int) -> list[Slot]:
        return [self._idle.popleft() if self._idle else self._make() for _ in range(count)]

    def give_back(self, slot: Slot) -> None:
        self._idle.append(slot)


@cache
def gpu_pool(ordinal: int, tensorflow_id: int) -> Pool:
    """The slots of one GPU. Raises OSError if the driver fails."""
    gpu, writers = Gpu(ordinal, tensorflow_id), ThreadPoolExecutor(WRITERS, "pinned-write")
    return Pool(lambda: GpuSlot(gpu, writers))
