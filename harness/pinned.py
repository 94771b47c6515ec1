"""Batches staged in pinned memory and copied to the GPU on a stream of their own, ahead of the steps.

TensorFlow copies from the pageable memory that tf.data hands out, at 5 to 10 GB/s on an H200 where pinned memory
gives 55; while such a copy runs, the thread that would launch the next step waits for the driver; and its copies wait
for the compute stream. Here a thread writes each batch into a pinned buffer and has the copy engine bring it to a
device buffer, which TensorFlow sees as a tensor (DLPack, no copy). There are three of each: one that the step under
way reads, one that is ready for the next, one being filled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

SLOTS = 3


class Slot(Protocol):
    """Room for one batch, on the host and on the device."""

    def fill(self, arrays: tuple[Any, ...]) -> None:
        """Write the arrays into the host's part."""

    def bring(self) -> None:
        """Copy the host's part to the device's once the steps that were `launched` are done with it; return after."""

    def tensors(self) -> tuple[Any, ...]:
        """The device's part, as the step takes it."""

    def launched(self) -> None:
        """Every kernel that reads the tensors has been launched."""


def staged(batches: Iterator[tuple[Any, ...]], slots: list[Any]) -> Iterator[tuple[Any, ...]]:
    """The batches (tuples of arrays of constant shapes), in order, as the slots' tensors.

    A batch is to be used before the next one is asked for: asking says that all that reads it has been launched.
    """

    def bring(slot: Slot) -> Slot | None:
        arrays = next(batches, None)
        if arrays is None:
            return None
        slot.fill(arrays)
        slot.bring()
        return slot

    with ThreadPoolExecutor(1, "pinned") as copier:
        coming = deque(copier.submit(bring, slot) for slot in slots)
        while slot := coming.popleft().result():
            yield slot.tensors()
            slot.launched()
            coming.append(copier.submit(bring, slot))
