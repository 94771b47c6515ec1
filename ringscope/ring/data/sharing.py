"""This rank's part of the training data.

Rank r of N takes samples (of arrays) or batches (of data sets) r, r + N, ...: the ranks' k-th batches together
are the k-th batch of one rank with N times the batch. All ranks get as many steps; what is left over is left
out.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
from keras.src.trainers import data_adapters

from profiles.ground.errors import RingscopeError

from ..global_batch.sizes import ALIKE, EVEN, UNEVEN
from ..internals.frameworks import tf
from ..say import once
from .pipeline import BATCHES, inputs
from .py_datasets import Part
from .samples import are_arrays, as_long, every
from .upstream import Share, between, of_each_group, share_before_work

__all__ = ["UNKNOWN_LENGTH", "batch_of", "share_of_training"]

UNKNOWN_LENGTH = ("together", "count")


def share_of_training(options: dict[str, Any], rank: int, size: int, unknown_length: str, share: Any) -> str:
    """Cut x, y and sample_weight of `fit`, or the data set, to this rank's share; a given steps_per_epoch is divided.
    Returns what the ranks' batches are to each other (ringscope/ring/global_batch/sizes.py).

    unknown_length: a data set that does not know its length is followed by all ranks to the last N batches that are
    whole (`together`), or counted once by each (`count`). share: gives every rank rank 0's value.
    """
    x = options.get("x")
    ours = UNEVEN
    if isinstance(x, tf.data.Dataset):
        smaller = False if static_batch(x) else has_smaller_last_batch(x)
        # A smaller last batch is left out where its group is not whole.
        if smaller is not None and not (smaller and int(x.cardinality()) % size == 0):
            ours = ALIKE if _is_of_known_shape(x) else EVEN
        bounded = bool(options.get("steps_per_epoch"))
        options["x"] = _share_of_dataset(x, rank, size, unknown_length, share, bounded=bounded)
    elif isinstance(x, keras.utils.PyDataset):
        options["x"] = _share_of_py_dataset(x, rank, size, share, options)
    elif kind := _loader(x):
        raise RingscopeError(
            f"{kind} cannot be split between ranks; give each rank its own part (ring.rank() of ring.size()) and"
            " call fit(..., shard=False)"
        )
    else:
        ours = EVEN
        arrays = {name: part for name in ("x", "y", "sample_weight") if (part := options.get(name)) is not None}
        # Else Keras refuses them, which it would not if all were cut.
        if are_arrays(*arrays.values()) and as_long(*arrays.values()):
            ours = ALIKE if all(map(_is_rectangular, keras.tree.flatten(arrays))) else EVEN
            for name, part in arrays.items():
                options[name] = keras.tree.map_structure(lambda a: every(a, rank, size), part)
    if options.get("steps_per_epoch"):
        options["steps_per_epoch"] = max(1, options["steps_per_epoch"] // size)
    return ours


def loader_of(x: Any) -> str:
    """What makes the batches, one of `profiles.model.marks.LOADERS`; "" where that is not known."""
    if isinstance(x, tf.data.Dataset):
        return "tf.data"
    if isinstance(x, keras.utils.PyDataset):
        return "PyDataset"
    if inspect.isgenerator(x):
        return "generator"
    if data_adapters.is_torch_dataloader(x):
        return "DataLoader"
    if data_adapters.is_grain_dataset(x):
        return "Grain"
    return "arrays" if x is not None and are_arrays(x) else ""


def _loader(x: Any) -> str:
    """What gives batches one after the other and says nothing of where they come from; "" for all else."""
    if inspect.isgenerator(x):
        return "a generator"
    if data_adapters.is_torch_dataloader(x):
        return "PyTorch's DataLoader"
    return "a data set of Grain" if data_adapters.is_grain_dataset(x) else ""


def static_batch(dataset: Any) -> bool:
    """True if all its batches are of one size."""
    shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(dataset.element_spec)]
    return all(shape is not None and shape.rank not in (None, 0) and shape[0] is not None for shape in shapes)


def _is_of_known_shape(dataset: Any) -> bool:
    """True if its batches have a shape that is known, but for the count of samples where nothing is done to batches."""
    specs = tf.nest.flatten(dataset.element_spec)
    known = all(isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined() for spec in specs)
    return known and (static_batch(dataset) or _batched(dataset, ("Prefetch", "Options", "Cache")) is not None)


def _is_rectangular(array: Any) -> bool:
    """True if all its samples are of one shape: what is sparse holds as many numbers as there are in each."""
    sparse = isinstance(array, (tf.RaggedTensor, tf.SparseTensor)) or hasattr(array, "tocsr")
    return not sparse and np.dtype(object) != getattr(array, "dtype", None)


def has_smaller_last_batch(dataset: Any) -> bool | None:
    """Whether the last batch of the data set is smaller than the others; None where that cannot be known."""
    batched = _batched(dataset, ("Prefetch", "Map", "Options", "Cache"))
    if batched is None:
        return None
    samples = int(inputs(batched)[0].cardinality())
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
    while True:
        kind, below = type(dataset).__name__, inputs(dataset)
        if kind in BATCHES and len(below) == 1:
            return dataset
        if len(below) != 1 or "FlatMap" in kind or not any(word in kind for word in after):
            return None
        dataset = below[0]


def _share_of_dataset(dataset: Any, rank: int, size: int, unknown_length: str, share: Any, *, bounded: bool) -> Any:
    batches = int(dataset.cardinality())
    spared = share_before_work(dataset, rank, size) if size > 1 else Share(None)
    own = spared.dataset
    if batches == tf.data.UNKNOWN_CARDINALITY and not bounded:
        if unknown_length == "together":
            if own is not None and static_batch(dataset):  # its last batch is whole, and so is the group
                return own
            _tell_price(spared, size, "a last batch may be smaller; batch(..., drop_remainder=True) prevents that")
            # All ranks read the same batches and so know the end without asking each other.
            return of_each_group(dataset, size, rank, 1, whole=True)
        # By all: a shuffle's next order, or what a generator draws, hangs on how often the data was gone through.
        batches = int(share(_count(dataset)))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(batches))
    if 0 <= batches < size:
        raise RingscopeError(
            f"{batches} batches cannot be shared by {size} ranks; use smaller batches, or start fewer ranks"
        )
    if own is None:
        _tell_price(spared, size, spared.why)
        own = dataset.shard(size, rank)
    if batches == tf.data.UNKNOWN_CARDINALITY:
        return own
    if batches > 0 and batches % size:
        return between(own, 0, batches // size)
    known = batches // size if batches > 0 else batches
    return own.apply(tf.data.experimental.assert_cardinality(known))


def _tell_price(spared: Share, size: int, otherwise: str) -> None:
    if spared.works:
        once(
            f"every rank prepares the batches of all {size} ranks: {spared.why or otherwise}; or give each its part"
            " of the data (ring.rank() of ring.size()) and call fit(..., shard=False)"
        )


def _count(dataset: Any) -> int:
    return int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))


def _share_of_py_dataset(whole: Any, rank: int, size: int, share: Any, options: dict[str, Any]) -> Any:
    batches, steps = whole.num_batches, options.get("steps_per_epoch")
    if batches is None:
        if not steps:
            raise RingscopeError("the PyDataset has no end; give fit(..., steps_per_epoch=...)")
        return Part(whole, rank, size, None, share)
    if batches < size:
        raise RingscopeError(
            f"{batches} batches cannot be shared by {size} ranks; use smaller batches, or start fewer ranks"
        )
    epoch = None
    if steps and (whole.workers > 1 or whole.use_multiprocessing):
        # Between epochs Keras keeps what these have prepared ahead, as much as there was time for, and begins anew
        # after it: ranks would go on at unlike batches.
        epoch = max(1, steps // size)
        options["steps_per_epoch"] = None
    return Part(whole, rank, size, batches // size, share, epoch)
