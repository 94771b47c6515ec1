"""Which part of the data is this rank's: of what is trained on, evaluated and predicted.

To train, rank r of N takes samples (of arrays) or batches (of data sets) r, r + N, ...: its k-th batch and those of the
others are together the k-th batch of one rank with N times the batch. All ranks get as many steps; what is left over is
left out. To evaluate and predict, batches go to ranks in blocks and nothing is left out: every batch is the one that a
rank alone would take, so any metric comes out as that rank's.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from profiles.errors import RingscopeError

from . import seeds
from .exchange import tf
from .say import once
from .upstream import Share, share_before_work

__all__ = [
    "UNKNOWN_LENGTH",
    "batch_of",
    "length",
    "share_of_evaluation",
    "share_of_states",
    "share_of_training",
    "static_batch",
]

UNKNOWN_LENGTH = ("together", "count")
BATCH = 32  # Keras's

# ---- training


def share_of_training(options: dict[str, Any], rank: int, size: int, unknown_length: str, share: Any) -> bool:
    """Cut x, y and sample_weight of `fit`, or the data set, to this rank's share; a given steps_per_epoch is divided.
    Returns whether the ranks' batches may be of unlike sizes.

    unknown_length: a data set that does not know its length is followed by all ranks to the last N batches that are
    whole (`together`), or counted once by rank 0 (`count`). share: gives every rank rank 0's value.
    """
    x = options.get("x")
    uneven = True
    if isinstance(x, tf.data.Dataset):
        smaller = False if static_batch(x) else has_smaller_last_batch(x)
        # A smaller last batch is left out where its group is not whole.
        uneven = smaller is None or (smaller and int(x.cardinality()) % size == 0)
        bounded = bool(options.get("steps_per_epoch"))
        options["x"] = _share_of_dataset(x, rank, size, unknown_length, share, bounded=bounded)
    elif isinstance(x, keras.utils.PyDataset):
        options["x"] = _share_of_py_dataset(x, rank, size, share, bounded=bool(options.get("steps_per_epoch")))
    elif inspect.isgenerator(x):
        raise RingscopeError(
            "a generator cannot be split between ranks; give each rank its own part (ring.rank() of ring.size()) and"
            " call fit(..., shard=False)"
        )
    else:
        uneven = False
        arrays = {name: part for name in ("x", "y", "sample_weight") if (part := options.get(name)) is not None}
        if _as_long(*arrays.values()):  # else Keras refuses them, which it would not if all were cut
            for name, part in arrays.items():
                options[name] = keras.tree.map_structure(lambda a: _every(a, rank, size), part)
    if options.get("steps_per_epoch"):
        options["steps_per_epoch"] = max(1, options["steps_per_epoch"] // size)
    return uneven


def static_batch(dataset: Any) -> bool:
    """Whether all its batches are of one size."""
    shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(dataset.element_spec)]
    return all(shape is not None and shape.rank not in (None, 0) and shape[0] is not None for shape in shapes)


def has_smaller_last_batch(dataset: Any) -> bool | None:
    """Whether the last batch of the data set is smaller than the others; None where that cannot be known."""
    batched = _batched(dataset, ("Prefetch", "Map", "Options", "Cache"))
    if batched is None:
        return None
    samples = int(batched._inputs()[0].cardinality())
    return samples % int(batched._batch_size) != 0 if samples >= 0 else None


def batch_of(dataset: Any) -> int | None:
    """The samples of its batches, of which the last may hold fewer; None where that cannot be known."""
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec) if getattr(spec, "shape", None) is not None]
    if shapes and shapes[0].rank and shapes[0][0] is not None:
        return int(shapes[0][0])
    batched = _batched(dataset, ("Prefetch", "Map", "Options", "Cache", "Repeat", "Shuffle", "Shard", "Take", "Skip"))
    return None if batched is None else int(batched._batch_size)


def _batched(dataset: Any, after: tuple[str, ...]) -> Any | None:
    """The operation that makes its batches, where only such come after it."""
    # TensorFlow has no public way to ask; where its private one changes, nothing is known.
    while True:
        kind, inputs = type(dataset).__name__, list(getattr(dataset, "_inputs", list)())
        if kind in ("_BatchDataset", "_ParallelBatchDataset") and len(inputs) == 1:
            return dataset
        if len(inputs) != 1 or "FlatMap" in kind or not any(word in kind for word in after):
            return None
        dataset = inputs[0]


def length(array: Any) -> int:
    """Samples: sparse matrices and ragged tensors have a shape, but no len()."""
    if isinstance(array, tf.RaggedTensor):
        return int(array.nrows())
    shape = getattr(array, "shape", None)
    return len(array) if shape is None else int(shape[0])


def _as_long(*parts: Any) -> bool:
    """Whether all arrays hold as many samples. parts: arrays in any structure, or None."""
    leaves = [leaf for part in parts for leaf in keras.tree.flatten(part)]
    return len({length(leaf) for leaf in leaves if len(getattr(leaf, "shape", None) or ())}) <= 1


def _every(array: Any, rank: int, size: int) -> Any:
    samples = length(array)
    usable = samples // size * size
    if not usable:
        raise RingscopeError(f"{samples} samples cannot be shared by {size} ranks; give more, or start fewer ranks")
    return _rows(array, range(rank, usable, size))


def _rows(array: Any, rows: range) -> Any:
    if isinstance(array, tf.SparseTensor):
        return _sparse_rows(array, rows)
    if hasattr(array, "tocsr"):
        return array.tocsr()[rows.start : rows.stop : rows.step]
    part = slice(rows.start, rows.stop, rows.step)
    if hasattr(array, "iloc"):
        return array.iloc[part]
    return array[part] if hasattr(array, "shape") else np.asarray(array)[part]


def _sparse_rows(array: Any, rows: range) -> Any:
    indices = array.indices.numpy()
    kept = np.isin(indices[:, 0], np.fromiter(rows, np.int64))
    own = indices[kept].copy()
    own[:, 0] = (own[:, 0] - rows.start) // rows.step
    shape = [len(rows), *array.dense_shape.numpy()[1:]]
    return tf.SparseTensor(own, tf.boolean_mask(array.values, kept), shape)


def _share_of_dataset(dataset: Any, rank: int, size: int, unknown_length: str, share: Any, *, bounded: bool) -> Any:
    batches = int(dataset.cardinality())
    spared = share_before_work(dataset, rank, size) if size > 1 else Share(None)
    own = spared.dataset
    if batches == tf.data.UNKNOWN_CARDINALITY and not bounded:
        if unknown_length == "together":
            if own is not None and static_batch(dataset):  # its last batch is whole, and so is the group
                return own
            _tell_price(spared, size, "a last batch may be smaller; batch(..., drop_remainder=True) rules that out")
            return _whole_groups(dataset, rank, size)
        batches = int(share(_count(dataset) if rank == 0 else None))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(batches))
    if 0 <= batches < size:
        raise RingscopeError(f"{batches} batches cannot be shared by {size} ranks; batch smaller, or start fewer ranks")
    if own is None:
        _tell_price(spared, size, spared.why)
        own = dataset.shard(size, rank)
        return own.take(batches // size) if batches > 0 else own
    if batches > 0:
        return own.take(batches // size).apply(tf.data.experimental.assert_cardinality(batches // size))
    if batches == tf.data.INFINITE_CARDINALITY:
        return own.apply(tf.data.experimental.assert_cardinality(batches))
    return own


def _tell_price(spared: Share, size: int, otherwise: str) -> None:
    if spared.works:
        once(
            f"every rank prepares the batches of all {size} ranks: {spared.why or otherwise}; or give each its part"
            " of the data (ring.rank() of ring.size()) and call fit(..., shard=False)"
        )


def _count(dataset: Any) -> int:
    return int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))


def _whole_groups(dataset: Any, rank: int, size: int) -> Any:
    """Of every `size` batches in a row the one of this rank; a last group that is not whole is left out. All ranks
    read the same batches and so know the end without asking each other."""

    def own(*group: Any) -> Any:
        together = tf.data.Dataset.zip(group[0] if len(group) == 1 else group)
        return together.skip(rank).take(1)

    return dataset.window(size, drop_remainder=True).flat_map(own)


class Part(keras.utils.PyDataset):
    """Batches start, start + step, ... of another PyDataset, `count` of them (None: without an end).

    share: gives every rank rank 0's value, for all shuffle alike between epochs; None where none do.
    """

    def __init__(self, whole: Any, start: int, step: int, count: int | None, share: Any = None) -> None:
        super().__init__(
            workers=whole.workers,
            use_multiprocessing=whole.use_multiprocessing,
            max_queue_size=whole.max_queue_size,
        )
        self._whole, self._start, self._step, self._count, self._share = whole, start, step, count, share

    @property
    def num_batches(self) -> int | None:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._whole[self._start + index * self._step]

    def on_epoch_begin(self) -> None:
        with self._alike():
            self._whole.on_epoch_begin()

    def on_epoch_end(self) -> None:
        with self._alike():
            self._whole.on_epoch_end()

    def _alike(self) -> AbstractContextManager[None]:
        return nullcontext() if self._share is None else seeds.as_on_rank_0(self._whole, self._share)


def _share_of_py_dataset(whole: Any, rank: int, size: int, share: Any, *, bounded: bool) -> Any:
    batches = whole.num_batches
    if batches is None:
        if not bounded:
            raise RingscopeError("the PyDataset has no end; give fit(..., steps_per_epoch=...)")
        return Part(whole, rank, size, None, share)
    if batches < size:
        raise RingscopeError(f"{batches} batches cannot be shared by {size} ranks; batch smaller, or start fewer ranks")
    return Part(whole, rank, size, batches // size, share)


# ---- evaluation


@dataclass(frozen=True, slots=True)
class Block:
    """This rank's part of what is evaluated or predicted, as keyword arguments for Keras."""

    x: Any
    y: Any
    sample_weight: Any
    steps: int | None


def share_of_evaluation(
    x: Any, y: Any, sample_weight: Any, batch_size: int | None, steps: int | None, rank: int, size: int
) -> Block | None:
    """The block of batches that is this rank's, the blocks in the order of the ranks; None where every rank must take
    all: fewer batches than ranks, their number is unknown, or arrays of unlike lengths, which Keras refuses."""
    if isinstance(x, tf.data.Dataset):
        batches = int(x.cardinality())
        if steps and (batches == tf.data.INFINITE_CARDINALITY or 0 <= steps < batches):
            batches, x = steps, x.take(steps)
        if batches < size or x.options().deterministic is False:
            return None
        start, stop = _block(batches, rank, size)
        return Block(x.skip(start).take(stop - start), y, sample_weight, None)
    if isinstance(x, keras.utils.PyDataset):
        count = x.num_batches if x.num_batches is None or not steps else min(steps, x.num_batches)
        if count is None or count < size:
            return None
        start, stop = _block(count, rank, size)
        return Block(Part(x, start, 1, stop - start), y, sample_weight, None)
    leaves = [] if x is None or inspect.isgenerator(x) else keras.tree.flatten(x)
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves) or not _as_long(x, y, sample_weight):
        return None
    batch, samples = batch_size or BATCH, length(leaves[0])
    samples = min(samples, steps * batch) if steps else samples
    batches = math.ceil(samples / batch)
    if batches < size:
        return None
    start, stop = _block(batches, rank, size)
    rows = range(start * batch, min(stop * batch, samples))
    return _of_arrays(lambda array: _rows(array, rows), x, y, sample_weight)


def share_of_states(
    x: Any, y: Any, sample_weight: Any, batch_size: int | None, steps: int | None, rank: int, size: int
) -> Block | None:
    """As `share_of_evaluation`, of a model that keeps the states of a batch's sequences for the next batch: what
    `share_of_training` would take of it, so that every rank goes on with the sequences that it has trained on. None
    where something would be left out."""
    if steps or x is None or inspect.isgenerator(x):
        return None
    if isinstance(x, tf.data.Dataset):
        batches = int(x.cardinality())
        if batches <= 0 or batches % size:
            return None
        return Block(x.shard(size, rank), y, sample_weight, None)
    if isinstance(x, keras.utils.PyDataset):
        count = x.num_batches
        if not count or count % size:
            return None
        return Block(Part(x, rank, size, count // size), y, sample_weight, None)
    leaves = keras.tree.flatten(x)
    if not all(hasattr(leaf, "shape") for leaf in leaves) or not _as_long(x, y, sample_weight):
        return None
    if length(leaves[0]) % (size * (batch_size or BATCH)):
        return None
    return _of_arrays(lambda array: _every(array, rank, size), x, y, sample_weight)


def _of_arrays(own: Callable[[Any], Any], x: Any, y: Any, sample_weight: Any) -> Block:
    """own: takes this rank's rows of an array. The parts: arrays in any structure, or None."""

    def cut(part: Any) -> Any:
        return None if part is None else keras.tree.map_structure(own, part)

    return Block(cut(x), cut(y), cut(sample_weight), None)


def _block(batches: int, rank: int, size: int) -> tuple[int, int]:
    return batches * rank // size, batches * (rank + 1) // size
