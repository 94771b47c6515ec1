"""Stage batches in pinned memory and copy them to the GPU on a separate stream, ahead of the steps.

TensorFlow copies from tf.data's pageable memory at 5 to 10 GB/s on an H200, where pinned memory gives 55. During such a
copy the thread that should launch the next step waits for the driver, and TensorFlow's copies wait for the compute
stream. Here threads write a batch into a pinned buffer while the copy engine moves the batch before to a device buffer,
which TensorFlow sees as a tensor (by DLPack, without a copy).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np

# slots: for the running step, for the step queued behind it, for a batch that is ready, and for one that is being
# written
SLOTS = 4
WRITERS = 4  # threads that together write a batch; one thread writes 3 to 10 GB/s
SHARED_BYTES = 1 << 20  # smaller arrays are written faster than a thread starts


class Slot(Protocol):
    """Buffers for one batch, on the host and on the device."""

    def fill(self, batch: Any) -> None:
        """Write the batch into the host buffer."""

    def bring(self, number: int) -> None:
        """Copy batch `number` from the host buffer to the device buffer once that is free; return when the batch is
        there."""

    def tensors(self) -> Any:
        """The batch on the device, as the step takes it."""

    def launched(self) -> None:
        """Note that all kernels that read the tensors have been launched: the device buffer is free once they end."""

    def wait_until_free(self) -> None:
        """Return when the device buffer is free."""


def write(into: Sequence[Any], arrays: Sequence[Any], writers: Executor) -> None:
    """Copy each flat array into the beginning of its buffer; several threads share a large array."""
    copies = []
    for buffer, array in zip(into, arrays, strict=False):
        parts = WRITERS if array.nbytes > SHARED_BYTES else 1
        for target, source in zip(
            np.array_split(buffer[: len(array)], parts), np.array_split(array, parts), strict=True
        ):
            if parts > 1:
                copies.append(writers.submit(np.copyto, target, source))
            else:
                np.copyto(target, source)
    for copy in copies:
        copy.result()


class Staged:
    """Yields the batches in order, as tensors of the slots.

    A batch must be used before the next one is asked for: asking means that every kernel that reads it has been
    launched. first: the number of the first batch. give_back: called with each slot once no more batches come through
    it.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        slots: Sequence[Slot],
        *,
        first: int = 0,
        give_back: Callable[[Slot], object] = lambda slot: None,
    ) -> None:
        self._batches, self._count, self._give_back = batches, first, give_back
        self._filler, self._copier = ThreadPoolExecutor(1, "pinned-fill"), ThreadPoolExecutor(1, "pinned-copy")
        self._given: Slot | None = None
        self._coming = deque((slot, self._begin(slot)) for slot in slots)

    def _begin(self, slot: Slot) -> Future[bool]:
        """Start to bring the next batch through the slot. The result is False if there is no more batch."""
        return self._copier.submit(self._bring, slot, self._filler.submit(self._fill, slot))

    def _fill(self, slot: Slot) -> bool:
        batch = next(self._batches, None)
        if batch is None:
            return False
        slot.fill(batch)
        return True

    def _bring(self, slot: Slot, filled: Future[bool]) -> bool:
        if not filled.result():
            return False
        slot.bring(self._count)
        self._count += 1
        return True

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._take_back()
        slot, brought = self._coming[0]
        if not brought.result():
            raise StopIteration
        self._coming.popleft()
        self._given = slot
        return slot.tensors()

    def wait_for_room(self) -> None:
        """Wait until the device is at most two steps behind. This waits for the device, not for the input."""
        self._take_back()
        after_next, _ = self._coming[1]
        after_next.wait_until_free()

    def close(self) -> None:
        """End without waiting for batches in flight; their slots are given back when they have arrived."""
        if self._given is not None:
            self._given.launched()
            self._give_back(self._given)
            self._given = None
        self._filler.shutdown(wait=False, cancel_futures=True)
        for slot, brought in self._coming:
            # The copier's work is not cancelled, because it may be waiting for a cancelled task of the filler, and ends
            # at once.
            brought.add_done_callback(partial(self._returned, slot))
        self._coming.clear()
        self._copier.shutdown(wait=False)

    def _returned(self, slot: Slot, brought: Future[bool]) -> None:
        self._give_back(slot)

    def _take_back(self) -> None:
        if self._given is not None:
            self._given.launched()
            self._coming.append((self._given, self._begin(self._given)))
            self._given = None
