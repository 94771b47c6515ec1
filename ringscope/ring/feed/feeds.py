"""Choose the feed of this process: through pinned buffers to a GPU, batches unchanged on a CPU.

A feed is an iterator of batches, each of which must be used before the next is asked for. A batch is data as the model
takes it, or `carriers.Carried`. `wait_for_room()` returns when the device is at most two steps behind; `close()` ends
it early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..data.ids import Ids
from ..internals.frameworks import tf
from .carriers import Batch
from .pinned import SLOTS, Staged
from .slots import Pool, gpu_pool


class Feed(Protocol):
    def __next__(self) -> Any: ...

    def wait_for_room(self) -> None: ...

    def close(self) -> None: ...


class Plain:
    """A feed that returns the iterator's batches unchanged."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def wait_for_room(self) -> None:
        pass

    def close(self) -> None:
        pass


def as_feed(batches: Any) -> Feed:
    """Batches of any kind as a feed."""
    return batches if hasattr(batches, "wait_for_room") else Plain(batches)


def feed(batches: Iterator[Any], *, first: int = 0, ids: Sequence[Ids] = ()) -> Feed:
    """The feed for this process's device. first: the number of the step that takes the first batch. ids: ids of
    embeddings to check on the way to a GPU; on a CPU TensorFlow checks them."""
    pool = slots()
    return Plain(batches) if pool is None else staged(batches, pool, first=first, ids=ids)


def slots() -> Pool | None:
    """The buffer slots for this process's GPU; None if it has no GPU, or the CUDA driver fails."""
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return None
    try:
        # TensorFlow numbers the GPUs that it may use from 0; the CUDA driver numbers all GPUs that the process sees.
        return gpu_pool(int(gpus[0].name.rsplit(":", 1)[1]), 0)
    except OSError:
        return None


def staged(batches: Iterator[Any], pool: Pool, *, first: int = 0, ids: Sequence[Ids] = ()) -> Staged:
    def checked(element: Any) -> Batch:
        batch = Batch.of(element)
        for each in ids:
            each.check(batch.numbers(each.leaf))
        return batch

    return Staged(map(checked, batches), pool.take(SLOTS), first=first, give_back=pool.give_back)
