"""What `model.fit` needs beside reduced gradients: the same start, a share of the data each, and logs that agree."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from profiles.errors import RingscopeError

from . import ring

# They write files: from every rank they would write over each other.
WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


class Agree(keras.callbacks.Callback):
    """Broadcast before the first step; average moving statistics and logs before anybody looks at them.

    It has no per-batch method, so Keras goes on launching steps without fetching a loss after each.
    """

    async_safe = True

    def on_train_begin(self, logs: Any = None) -> None:
        ring.broadcast(self.model)

    def on_test_begin(self, logs: Any = None) -> None:
        ring.average_statistics(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        ring.average_statistics(self.model)
        ring.average_logs(logs if logs is not None else {})

    def on_train_end(self, logs: Any = None) -> None:
        ring.average_statistics(self.model)


def distribute_fit(model: Any) -> None:
    """Shadow `model.fit`: each rank trains on its share, of equal length on all, so that no rank waits for a step that
    another does not take. `fit(..., shard=False)` says that the data is this rank's share already."""
    fit = model.fit
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def distributed(*args: Any, shard: bool = True, **kwargs: Any) -> Any:
        if not ring.is_distributed(model):
            raise RingscopeError(
                "the model was compiled again, with another optimizer; call ring.distribute(model) again"
            )
        bound = signature.bind(*args, **kwargs).arguments
        options = bound.pop("kwargs", {}) | bound
        if shard and ring.size() > 1:
            _take_share(options)
        _build(model, options)
        if ring.rank() != 0:
            options["verbose"] = 0
        given = options.get("callbacks") or []
        given = list(given) if isinstance(given, (list, tuple)) else [given]
        if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in given):
            raise RingscopeError(
                "BackupAndRestore would restore each rank's epoch by itself; save with ModelCheckpoint, and load the"
                " weights before fit: rank 0's are sent to all"
            )
        if ring.rank() != 0:
            given = [callback for callback in given if not isinstance(callback, WRITERS)]
        # First, so that the callbacks after it (early stopping, checkpoints) see the averages and decide alike.
        options["callbacks"] = [Agree(), *given]
        return fit(**options)

    model.fit = distributed


def _take_share(options: dict[str, Any]) -> None:
    """Cut x, y and sample_weight (or the data set) to rank, rank + size, ...; a given steps_per_epoch is divided."""
    rank, size = ring.rank(), ring.size()
    x = options.get("x")
    if isinstance(x, tf.data.Dataset):
        options["x"] = _share_of_dataset(x, bounded="steps_per_epoch" in options)
    elif inspect.isgenerator(x) or isinstance(x, keras.utils.PyDataset):
        raise RingscopeError(
            "a generator cannot be split between ranks; give each rank its own part (ring.rank() of ring.size()) and"
            " call fit(..., shard=False)"
        )
    else:
        for name in ("x", "y", "sample_weight"):
            if options.get(name) is not None:
                options[name] = keras.tree.map_structure(lambda a: _share_of_array(a, rank, size), options[name])
    if options.get("steps_per_epoch"):
        options["steps_per_epoch"] = max(1, options["steps_per_epoch"] // size)


def _share_of_array(array: Any, rank: int, size: int) -> Any:
    usable = len(array) // size * size
    if not usable:
        raise RingscopeError(f"{len(array)} samples cannot be shared by {size} ranks; give more, or start fewer ranks")
    return array[rank:usable:size] if hasattr(array, "shape") else np.asarray(array)[rank:usable:size]


def _share_of_dataset(dataset: Any, *, bounded: bool) -> Any:
    batches = int(dataset.cardinality())
    if batches == tf.data.UNKNOWN_CARDINALITY and not bounded:
        raise RingscopeError(
            "the data set does not know its length, so ranks might get unequal numbers of batches and wait for ever;"
            " give steps_per_epoch, or tf.data.experimental.assert_cardinality"
        )
    share = dataset.shard(ring.size(), ring.rank())
    return share.take(batches // ring.size()) if batches > 0 else share


def _build(model: Any, options: dict[str, Any]) -> None:
    """Create the weights now, so that there is something to broadcast before the first step."""
    if model.built:
        return
    x = options.get("x")
    sample = next(iter(x))[0] if isinstance(x, tf.data.Dataset) else keras.tree.map_structure(lambda a: a[:1], x)
    model(sample)
