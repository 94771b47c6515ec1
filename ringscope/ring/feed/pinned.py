"""Batches staged in pinned memory and copied to the GPU on a stream of their own, ahead of the steps.

TensorFlow copies from the pageable memory that tf.data hands out, at 5 to 10 GB/s on an H200 where pinned memory
gives 55; while such a copy runs, the thread that would launch the next step waits for the driver; and its copies wait
for the compute stream. Here threads write each batch into a pinned buffer while the copy engine brings the one before
to a device buffer, which TensorFlow sees as a tensor (DLPack, no copy).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np

# For the step that runs, the one that is queued behind it, the next, which is ready, and one that is being filled.
SLOTS = 4
WRITERS = 4  # threads that share the writing of a batch: one alone writes 3 to 10 GB/s
SHARED_BYTES = 1 << 20  # less is written before a thread has begun


class Slot(Protocol):
    """Room for one batch, on the host and on the device."""

    def fill(self, batch: Any) -> None:
        """Write the batch into the host's part."""

    def bring(self, number: int) -> None:
        """Copy the host's part, batch `number`, to the device's when that is free again; return when it is there."""

    def tensors(self) -> Any:
        """The batch on the device, as the step takes it."""

    def launched(self) -> None:
        """Every kernel that reads the tensors has been launched: the device's part is free when they are done."""

    def wait_until_free(self) -> None:
        """Return when it is."""


def write(into: Sequence[Any], arrays: Sequence[Any], writers: Executor) -> None:
    """Copy each flat array into the beginning of its buffer; the writers' threads share what is large."""
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
    """The batches in order, as the slots' tensors.

    A batch is to be used before the next one is asked for: asking says that all that reads it has been launched.
    first: the number of the first batch. give_back: called with each slot once no batch will come through it.
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
        """The next batch is on its way through the slot; False once there is none."""
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
        """Wait until the device is at most two steps behind: what is waited for here is the device, not the input."""
        self._take_back()
        after_next, _ = self._coming[1]
        after_next.wait_until_free()

    def close(self) -> None:
        """End without waiting for batches that are under way; their slots go back when they have come."""
        if self._given is not None:
            self._given.launched()
            self._give_back(self._given)
            self._given = None
        self._filler.shutdown(wait=False, cancel_futures=True)
        for slot, brought in self._coming:
            # Not cancelled, for the copier may just wait for its filling; where that is cancelled it ends at once.
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
