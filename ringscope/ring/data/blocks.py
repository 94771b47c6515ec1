"""This rank's part of data to evaluate or predict.

Each rank takes a block of consecutive batches, and no batch is left out. All batches are those that a single rank would
take, so every metric comes out as on a single rank.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from ..internals.frameworks import tf
from .pipeline import has_cache
from .py_datasets import PyDatasetPart
from .samples import BATCH, as_long, every, length, take
from .upstream import between


@dataclass(frozen=True, slots=True)
class Block:
    """This rank's part of the data to evaluate or predict, as keyword arguments for Keras."""

    x: Any
    y: Any
    sample_weight: Any
    steps: int | None


def share_of_evaluation(
    x: Any, y: Any, sample_weight: Any, batch_size: int | None, steps: int | None, rank: int, size: int
) -> Block | None:
    """This rank's block of batches; rank 0 has the first block. None if every rank must take all batches: there are
    fewer batches than ranks, their number is unknown, or arrays differ in length, which Keras refuses."""
    if isinstance(x, tf.data.Dataset):
        batches = int(x.cardinality())
        if steps and (batches == tf.data.INFINITE_CARDINALITY or 0 <= steps < batches):
            batches, x = steps, x.take(steps)
        if batches < size or x.options().deterministic is False:
            return None
        start, stop = _block(batches, rank, size)
        part = between(x, start, stop) if has_cache(x) else x.skip(start).take(stop - start)
        return Block(part, y, sample_weight, None)
    if isinstance(x, keras.utils.PyDataset):
        count = x.num_batches if x.num_batches is None or not steps else min(steps, x.num_batches)
        if count is None or count < size:
            return None
        start, stop = _block(count, rank, size)
        return Block(PyDatasetPart(x, start, 1, stop - start), y, sample_weight, None)
    leaves = [] if x is None or inspect.isgenerator(x) else keras.tree.flatten(x)
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves) or not as_long(x, y, sample_weight):
        return None
    batch, samples = batch_size or BATCH, length(leaves[0])
    samples = min(samples, steps * batch) if steps else samples
    batches = math.ceil(samples / batch)
    if batches < size:
        return None
    start, stop = _block(batches, rank, size)
    rows = range(start * batch, min(stop * batch, samples))
    return _of_arrays(lambda array: take(array, rows), x, y, sample_weight)


def share_of_states(
    x: Any, y: Any, sample_weight: Any, batch_size: int | None, steps: int | None, rank: int, size: int
) -> Block | None:
    """`share_of_evaluation` for a model that keeps a batch's states for the next batch.

    The share is the one of training (`share_of_training`), so that every rank continues the sequences that it has
    trained on. None if that share would leave samples out.
    """
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
        return Block(PyDatasetPart(x, rank, size, count // size), y, sample_weight, None)
    leaves = keras.tree.flatten(x)
    if not all(hasattr(leaf, "shape") for leaf in leaves) or not as_long(x, y, sample_weight):
        return None
    if length(leaves[0]) % (size * (batch_size or BATCH)):
        return None
    return _of_arrays(lambda array: every(array, rank, size), x, y, sample_weight)


def _of_arrays(own: Callable[[Any], Any], x: Any, y: Any, sample_weight: Any) -> Block:
    """The block of arrays. own: takes this rank's rows of an array. x, y, sample_weight: arrays in any structure, or
    None."""

    def cut(part: Any) -> Any:
        return None if part is None else keras.tree.map_structure(own, part)

    return Block(cut(x), cut(y), cut(sample_weight), None)


def _block(batches: int, rank: int, size: int) -> tuple[int, int]:
    return batches * rank // size, batches * (rank + 1) // size
