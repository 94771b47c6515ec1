"""Bring batches to the device: one function per feed.

    feed(source: Source, device: str) -> Iterator[tuple[x, y]]

A feed yields batches of `source.batch` samples without end. x: (batch, *spec.input_shape) of `source.dtype`; y:
(batch,) of int64; NumPy arrays or tensors, in host or device memory depending on the feed. `device` is "/GPU:0" or
"/CPU:0". TensorFlow is loaded by the first feed that needs it. The time that `next` takes is the step's wait for input.
FEEDS names all feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell

from ..models import MODELS
from .sources import POOL_BATCHES, Source, Synthetic, TFRecords

Batch = tuple[Any, Any]


def numpy(source: Source, device: str) -> Iterator[Batch]:
    """NumPy arrays are passed to the step unchanged: TensorFlow copies them on the host, then to the device."""
    return source.arrays()


def host(source: Source, device: str) -> Iterator[Batch]:
    """tf.data without prefetching: the batch is made while the step waits for it."""
    return iter(source.dataset())


def prefetch(source: Source, device: str) -> Iterator[Batch]:
    """tf.data, prefetched in host memory: making a batch overlaps with training, its copy to the device does not."""
    import tensorflow as tf

    return iter(source.dataset().prefetch(tf.data.AUTOTUNE))


def prefetch_to_device(source: Source, device: str) -> Iterator[Batch]:
    """tf.data, prefetched in the device's memory: TensorFlow copies batches ahead of the steps."""
    import tensorflow as tf

    return iter(source.dataset().apply(tf.data.experimental.prefetch_to_device(device, buffer_size=2)))


def staging(source: Source, device: str) -> Iterator[Batch]:
    """A double buffer on the device, like TensorFlow 1's StagingArea: batch i + 1 is copied while step i runs."""
    import tensorflow as tf

    batches = iter(source.dataset().prefetch(tf.data.AUTOTUNE))

    def stage() -> Batch:
        x, y = next(batches)
        with tf.device(device):
            return tf.identity(x), tf.identity(y)

    with ThreadPoolExecutor(1, thread_name_prefix="staging") as copier:
        staged = copier.submit(stage)
        while True:
            batch = staged.result()
            staged = copier.submit(stage)
            yield batch


def pinned(source: Source, device: str) -> Iterator[Batch]:
    """tf.data into pinned buffers, copied ahead on a CUDA stream of its own: the fastest feed to a GPU, as in ring's
    `fit`."""
    import tensorflow as tf

    from ringscope.ring.feed.feeds import slots, staged

    pool = slots()
    if pool is None:
        raise RingscopeError("the feed `pinned` needs a GPU whose driver answers, and there is none; use `prefetch`")
    return staged(iter(source.dataset().prefetch(tf.data.AUTOTUNE)), pool)


def resident(source: Source, device: str) -> Iterator[Batch]:
    """One batch that stays on the device: nothing is fed, so no other feed can be faster."""
    import tensorflow as tf

    x, y = next(source.arrays())
    with tf.device(device):
        batch = tf.identity(tf.constant(x)), tf.identity(tf.constant(y))
    while True:
        yield batch


FEEDS: dict[str, Callable[[Source, str], Iterator[Batch]]] = {
    "numpy": numpy,
    "host": host,
    "prefetch": prefetch,
    "device": prefetch_to_device,
    "staging": staging,
    "pinned": pinned,
    "resident": resident,
}


def make_source(cell: Cell, batch: int, *, rank: int, size: int, threads: int) -> Source:
    """The source of the cell's samples. batch: this rank's samples per step."""
    spec = MODELS[cell.model]
    common: dict[str, Any] = {"rank": rank, "size": size, "dtype": cell.input_dtype, "threads": threads}
    if cell.data == "generated":
        from .generated import Generated

        return Generated(spec, batch, seed=cell.seed, count=cell.epoch_samples, **common)
    if cell.data == "synthetic":
        batches = 1 if cell.feed == "resident" else POOL_BATCHES
        return Synthetic(spec, batch, seed=cell.seed, batches=batches, **common)
    return TFRecords(Path(cell.data), spec, batch, **common)
