"""What `model.fit` needs beside reduced gradients: the same start, a share of the data each, and logs that agree."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from profiles.errors import RingscopeError

from .callbacks import Callbacks
from .exchange import average_logs, average_statistics, broadcast, has_weights, hvd, is_distributed

UNKNOWN = -1
UNSEEDED = (0, 0)
# They write files: from every rank they would write over each other.
WRITERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


class Agree(keras.callbacks.Callback):
    """Broadcast before the first step; average moving statistics and logs before anybody looks at them.

    It has no per-batch method, so Keras goes on launching steps without fetching a loss after each.
    """

    async_safe = True

    def on_train_begin(self, logs: Any = None) -> None:
        broadcast(self.model)

    def on_test_begin(self, logs: Any = None) -> None:
        average_statistics(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        average_statistics(self.model)
        average_logs(logs if logs is not None else {})

    def on_train_end(self, logs: Any = None) -> None:
        average_statistics(self.model)


class StopTogether(keras.callbacks.Callback):
    """The last to be asked after an epoch: where one rank's callbacks stop, say at an hour of its clock, all stop."""

    async_safe = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        stops = tf.constant(float(self.model.stop_training))
        self.model.stop_training = bool(hvd.allreduce(stops, op=hvd.Max, name="stop") > 0)


class TerminateOnNaN(keras.callbacks.TerminateOnNaN):
    """Keras's, asked on all ranks together: the rank with the NaN would else leave the others waiting for it."""

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        logs = {"loss": logs["loss"]} if logs and "loss" in logs else {}
        average_logs(logs)  # of a NaN and anything else it is NaN
        super().on_batch_end(batch, logs)


def distribute_fit(model: Any) -> None:
    """Shadow `model.fit`: each rank trains on its share, of equal length on all, so that no rank waits for a step that
    another does not take. `fit(..., shard=False)` says that the data is this rank's share already."""
    fit = model.fit
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def distributed(*args: Any, shard: bool = True, **kwargs: Any) -> Any:
        if not is_distributed(model):
            raise RingscopeError(
                "the model was compiled again, with another optimizer; call ring.distribute(model) again"
            )
        bound = signature.bind(*args, **kwargs).arguments
        options = bound.pop("kwargs", {}) | bound
        if shard and hvd.size() > 1:
            _take_share(options)
        _agree_on_plan(options)
        if not has_weights(model):
            _build(model, options.get("x"))
        if hvd.rank() != 0:
            options["verbose"] = 0
        options["callbacks"] = _together(options.get("callbacks"))
        if model.jit_compile:  # compiled again, with the same optimizer
            model.jit_compile, model.train_function = False, None
        options["callbacks"] = _listed(model, options)
        try:
            return fit(**options)
        finally:
            model.loop_by_ring.close()

    distributed.by_ring = True  # type: ignore[attr-defined]
    model.fit = distributed


def _listed(model: Any, options: dict[str, Any]) -> Callbacks:
    steps = _steps(options)
    return Callbacks(
        options["callbacks"],
        model=model,
        verbose=options.get("verbose", "auto"),
        epochs=int(options.get("epochs", 1)),
        steps=None if steps == UNKNOWN else steps,
    )


def _together(given: Any) -> list[Any]:
    """The user's callbacks as this rank calls them, between those that make the ranks agree."""
    given = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
    if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in given):
        raise RingscopeError(
            "BackupAndRestore would restore each rank's epoch by itself; save with ModelCheckpoint, and load the"
            " weights before fit: rank 0's are sent to all"
        )
    if hvd.rank() != 0:
        given = [callback for callback in given if not isinstance(callback, WRITERS)]
    for i, callback in enumerate(given):
        if type(callback) is keras.callbacks.TerminateOnNaN:
            given[i] = TerminateOnNaN()
            vars(given[i]).update(vars(callback))
    # First, so that the callbacks after it (early stopping, checkpoints) see the averages and decide alike.
    return [Agree(), *given, StopTogether()]


def _take_share(options: dict[str, Any]) -> None:
    """Cut x, y and sample_weight (or the data set) to rank, rank + size, ...; a given steps_per_epoch is divided."""
    rank, size = hvd.rank(), hvd.size()
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
    seeds = hvd.allgather_object(_shuffle_seeds(dataset), name="seeds")
    if hvd.rank() == 0 and (UNSEEDED in seeds[0] or any(others != seeds[0] for others in seeds)):
        warnings.warn(
            "each rank shuffles the data set by an order of its own, so that the ranks' shares overlap; give shuffle a"
            " seed, the same on all ranks",
            stacklevel=4,
        )
    share = dataset.shard(hvd.size(), hvd.rank())
    return share.take(batches // hvd.size()) if batches > 0 else share


def _shuffle_seeds(dataset: Any) -> list[tuple[int, int]]:
    """The seeds of every shuffle that the data set comes through."""
    # TensorFlow has no public way to ask; where its private one changes, nobody is warned.
    own = type(dataset).__name__ == "_ShuffleDataset" and hasattr(dataset, "_seed2")
    found = [(int(dataset._seed), int(dataset._seed2))] if own else []
    return found + [pair for source in getattr(dataset, "_inputs", list)() for pair in _shuffle_seeds(source)]


def _agree_on_plan(options: dict[str, Any]) -> None:
    """Raise RingscopeError where the ranks know that some would wait for others for ever."""
    validates = options.get("validation_data") is not None or bool(options.get("validation_split"))
    mine = tf.constant([[_steps(options), int(options.get("epochs", 1)), int(validates)]], tf.int64)
    steps, epochs, validations = hvd.allgather(mine, name="plan").numpy().T.tolist()
    _check_alike(steps, "steps an epoch", "give all ranks data of one length, or one steps_per_epoch")
    _check_alike(epochs, "epochs", "give all ranks as many")
    _check_alike(validations, "validations an epoch", "give validation_data to all ranks, or to none")


def _check_alike(counts: list[int], what: str, remedy: str) -> None:
    known = [(rank, count) for rank, count in enumerate(counts) if count != UNKNOWN]
    if len({count for _, count in known}) > 1:
        (least, fewest), (most, largest) = (choose(known, key=lambda pair: pair[1]) for choose in (min, max))
        raise RingscopeError(
            f"rank {least} has {fewest} {what} and rank {most} {largest}: rank {most} would wait for ever; {remedy}"
        )


def _steps(options: dict[str, Any]) -> int:
    """This rank's steps an epoch, UNKNOWN where only the data's end will tell."""
    x = options.get("x")
    if options.get("steps_per_epoch"):
        return int(options["steps_per_epoch"])
    if isinstance(x, tf.data.Dataset):
        return max(UNKNOWN, int(x.cardinality()))
    if isinstance(x, keras.utils.PyDataset):
        batches = x.num_batches
        return UNKNOWN if batches is None else int(batches)
    first = next((leaf for leaf in keras.tree.flatten(x) if hasattr(leaf, "shape")), None)
    if first is None:
        return UNKNOWN
    trained = math.floor(len(first) * (1 - (options.get("validation_split") or 0)))
    return math.ceil(trained / (options.get("batch_size") or 32))


def _build(model: Any, x: Any) -> None:
    """Create the weights now, so that there is something to broadcast before the first step."""
    if isinstance(x, tf.data.Dataset):
        batch = next(iter(x))
    elif isinstance(x, keras.utils.PyDataset):
        batch = x[0]
    elif inspect.isgenerator(x):
        raise RingscopeError("the model has no weights yet; call it on a batch before fit, or model.build(input_shape)")
    else:
        batch = (keras.tree.map_structure(lambda a: a[:1], x),)
    model(keras.utils.unpack_x_y_sample_weight(batch)[0])
