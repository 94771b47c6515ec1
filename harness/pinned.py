"""Batches staged in pinned memory on their way to the GPU.

TensorFlow copies from the pageable memory that tf.data hands out, at 5 to 10 GB/s on an H200 where pinned memory
gives 55; and while such a copy runs, the thread that would launch the next step waits for the driver. So a thread of
its own first copies each batch into one of a few pinned buffers, which TensorFlow sees as tensors (DLPack, no copy),
and a second thread has TensorFlow copy it to the device, on its copy stream, while earlier steps compute.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

BUFFERS = 2  # one is filled while the other is copied
AHEAD = 3  # batches asked for before they are needed; TensorFlow's copy waits for the step under way


class StagingBuffer:
    """Room for one batch: `views` are arrays over the memory."""

    def __init__(self, like: tuple[Any, ...], allocate: Callable[[int], memoryview]):
        self.views = [np.frombuffer(allocate(a.nbytes), a.dtype, a.size).reshape(a.shape) for a in like]

    def fill(self, arrays: tuple[Any, ...]) -> None:
        for view, array in zip(self.views, arrays, strict=True):
            np.copyto(view, array)


def staged(
    batches: Iterator[tuple[Any, ...]],
    *,
    allocate: Callable[[int], memoryview],
    to_tensor: Callable[[Any], Any],
    to_device: Callable[[list[Any]], tuple[Any, ...]],
) -> Iterator[tuple[Any, ...]]:
    """The batches (tuples of NumPy arrays of constant shapes), in order, as `to_device` leaves them.

    to_device must return only when it has read the buffer: the next batch is written over it.
    """
    first = next(batches)
    free: queue.SimpleQueue[StagingBuffer] = queue.SimpleQueue()
    for _ in range(BUFFERS):
        free.put(StagingBuffer(first, allocate))
    waiting: list[tuple[Any, ...]] = [first]

    def fill() -> StagingBuffer:
        arrays = waiting.pop() if waiting else next(batches)
        buffer = free.get()
        buffer.fill(arrays)
        return buffer

    def copy(filled: Future[StagingBuffer]) -> tuple[Any, ...]:
        buffer = filled.result()
        try:
            # New tensors every time: TensorFlow keeps what it has copied of a tensor to a device. One that is used
            # again would be copied once and never more, whatever was written into its memory since.
            return to_device([to_tensor(view) for view in buffer.views])
        finally:
            free.put(buffer)

    with ThreadPoolExecutor(1, "pinned-fill") as filler, ThreadPoolExecutor(1, "pinned-copy") as copier:
        coming = deque(copier.submit(copy, filler.submit(fill)) for _ in range(AHEAD))
        while True:
            batch = coming.popleft().result()
            coming.append(copier.submit(copy, filler.submit(fill)))
            yield batch
