"""This rank's part of the training data.

Rank r of N takes samples (of arrays) or batches (of data sets) r, r + N, ...: the ranks' k-th batches together are the
k-th batch of one rank with N times the batch size. All ranks take the same number of steps; a remainder is left out.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
from keras.src.trainers import data_adapters

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf
from ..models import ALIKE, EVEN, UNEVEN
from ..say import once
from .pipeline import BATCHES, inputs
from .py_datasets import PyDatasetPart
from .samples import are_arrays, as_long, every
from .upstream import EarlyShare, between, of_each_group, share_before_work

UNKNOWN_LENGTH = ("together", "count")
# sources that do not show how they make their batches, by `loader_of` -> their names in messages
UNDIVIDED = {"generator": "a generator", "DataLoader": "PyTorch's DataLoader", "Grain": "a data set of Grain"}


def share_of_training(options: dict[str, Any], rank: int, size: int, unknown_length: str, share: Any) -> str:
    """Reduce x, y and sample_weight of `fit`, or the data set, to this rank's share; steps_per_epoch is divided by the
    ranks.

    Returns how the ranks' batches compare in size (ringscope/ring/models.py). unknown_length: how ranks
    find the end of a data set of unknown length: they stop after the last whole batches of which each rank has one
    (`together`), or each counts all batches first (`count`). share: gives every rank rank 0's value.
    """
    x = options.get("x")
    ours = UNEVEN
    if isinstance(x, tf.data.Dataset):
        smaller = False if static_batch(x) else has_smaller_last_batch(x)
        # Each group of N batches goes to the N ranks. An incomplete group is left out, and with it a smaller last
        # batch.
        if smaller is not None and not (smaller and int(x.cardinality()) % size == 0):
            ours = ALIKE if _is_of_known_shape(x) else EVEN
        bounded = bool(options.get("steps_per_epoch"))
        options["x"] = _share_of_dataset(x, rank, size, unknown_length, share, bounded=bounded)
    elif isinstance(x, keras.utils.PyDataset):
        options["x"] = _share_of_py_dataset(x, rank, size, share, options)
    elif kind := UNDIVIDED.get(loader_of(x)):
        raise RingscopeError(
            f"{kind} cannot be split between ranks; give each rank its own part (ring.rank() of ring.size()) and"
            " call fit(..., shard=False)"
        )
    else:
        ours = EVEN
        arrays = {name: part for name in ("x", "y", "sample_weight") if (part := options.get(name)) is not None}
        # Arrays of different lengths are not divided, so that Keras refuses them.
        if are_arrays(*arrays.values()) and as_long(*arrays.values()):
            ours = ALIKE if all(map(_is_rectangular, keras.tree.flatten(arrays))) else EVEN
            for name, part in arrays.items():
                options[name] = keras.tree.map_structure(lambda a: every(a, rank, size), part)
    if options.get("steps_per_epoch"):
        steps = max(1, options["steps_per_epoch"] // size)
        once(f"steps_per_epoch={options['steps_per_epoch']} counts the steps of all ranks: each rank takes {steps}")
        options["steps_per_epoch"] = steps
    return ours


def loader_of(x: Any) -> str:
    """The kind of data that makes the batches, one of `profiles.model.marks.LOADERS`; "" if unknown."""
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


def static_batch(dataset: Any) -> bool:
    """True if the data set's element spec fixes the batch size."""
    shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(dataset.element_spec)]
    return all(shape is not None and shape.rank not in (None, 0) and shape[0] is not None for shape in shapes)


def _is_of_known_shape(dataset: Any) -> bool:
    """True if the shapes of all batches are known, or all but the batch size, if only caching and prefetching come
    after batch()."""
    specs = tf.nest.flatten(dataset.element_spec)
    known = all(isinstance(spec, tf.TensorSpec) and spec.shape[1:].is_fully_defined() for spec in specs)
    return known and (static_batch(dataset) or _batched(dataset, ("Prefetch", "Options", "Cache")) is not None)


def _is_rectangular(array: Any) -> bool:
    """True if all samples have one shape. Sparse and ragged data do not count: each sample holds its own number of
    values."""
    sparse = isinstance(array, (tf.RaggedTensor, tf.SparseTensor)) or hasattr(array, "tocsr")
    return not sparse and np.dtype(object) != getattr(array, "dtype", None)


def has_smaller_last_batch(dataset: Any) -> bool | None:
    """True if the last batch of the data set is smaller than the others; None if that cannot be known."""
    batched = _batched(dataset, ("Prefetch", "Map", "Options", "Cache"))
    if batched is None:
        return None
    samples = int(inputs(batched)[0].cardinality())
    return samples % int(batched._batch_size) != 0 if samples >= 0 else None


def batch_of(dataset: Any) -> int | None:
    """The number of samples in a batch (the last may hold fewer); None if that cannot be known."""
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec) if getattr(spec, "shape", None) is not None]
    if shapes and shapes[0].rank and shapes[0][0] is not None:
        return int(shapes[0][0])
    batched = _batched(dataset, ("Prefetch", "Map", "Options", "Cache", "Repeat", "Shuffle", "Shard", "Take", "Skip"))
    return None if batched is None else int(batched._batch_size)


def _batched(dataset: Any, after: tuple[str, ...]) -> Any | None:
    """The data set's batch() operation, if only operations named in `after` follow it; else None."""
    while True:
        kind, below = type(dataset).__name__, inputs(dataset)
        if kind in BATCHES and len(below) == 1:
            return dataset
        if len(below) != 1 or "FlatMap" in kind or not any(word in kind for word in after):
            return None
        dataset = below[0]


def _share_of_dataset(dataset: Any, rank: int, size: int, unknown_length: str, share: Any, *, bounded: bool) -> Any:
    batches = int(dataset.cardinality())
    spared = share_before_work(dataset, rank, size) if size > 1 else EarlyShare(None)
    own = spared.dataset
    if batches == tf.data.UNKNOWN_CARDINALITY and not bounded:
        if unknown_length == "together":
            if own is not None and static_batch(dataset):  # all batches are whole, and so is the last group of them
                return own
            _tell_price(spared, size, "a last batch may be smaller; batch(..., drop_remainder=True) prevents that")
            # All ranks read all batches, and so know the end without asking each other.
            return of_each_group(dataset, size, rank, 1, whole=True)
        # Every rank counts, because each pass through the data changes a shuffle's next order, or what a generator
        # draws.
        batches = int(share(int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(batches))
    if 0 <= batches < size:
        raise _too_few(batches, size)
    if own is None:
        _tell_price(spared, size, spared.why)
        own = dataset.shard(size, rank)
    if batches == tf.data.UNKNOWN_CARDINALITY:
        return own
    if batches > 0 and batches % size:
        return between(own, 0, batches // size)
    known = batches // size if batches > 0 else batches
    return own.apply(tf.data.experimental.assert_cardinality(known))


def _too_few(batches: int, size: int) -> RingscopeError:
    return RingscopeError(f"too few batches for {size} ranks ({batches}); use smaller batches, or start fewer ranks")


def _tell_price(spared: EarlyShare, size: int, otherwise: str) -> None:
    if spared.works:
        once(
            f"every rank prepares the batches of all {size} ranks: {spared.why or otherwise}. To prepare fewer, you can"
            " also give each rank its part of the data (ring.rank() of ring.size()) and call fit(..., shard=False)"
        )


def _share_of_py_dataset(whole: Any, rank: int, size: int, share: Any, options: dict[str, Any]) -> Any:
    batches, steps = whole.num_batches, options.get("steps_per_epoch")
    if batches is None:
        if not steps:
            raise RingscopeError("the PyDataset has no end; give fit(..., steps_per_epoch=...)")
        return PyDatasetPart(whole, rank, size, None, share)
    if batches < size:
        raise _too_few(batches, size)
    epoch = None
    if steps and (whole.workers > 1 or whole.use_multiprocessing):
        # Between epochs Keras keeps the batches that its workers have prepared, and begins at the first one again after
        # them. Their number depends on timing, so ranks would take different batches. So the part ends each epoch.
        epoch = max(1, steps // size)
        options["steps_per_epoch"] = None
    return PyDatasetPart(whole, rank, size, batches // size, share, epoch)
