"""`fit` after the two lines beside plain Keras's on the joined batch. usage: like_keras.py OUT STEP FEED

Writes for each case what ring's model and the plain one came to: history, per-batch logs, weights. FEED `staged` puts
the batches through the buffers that stand before a GPU, here in host memory.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring
from tests.harness import as_on_gpus

ring.init()
out, step, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if how == "staged":
    as_on_gpus.begin()
rank, size, batch = ring.rank(), ring.size(), 4
random = np.random.default_rng(0)
x = random.normal(size=(48, 6)).astype("float32")
tokens = random.integers(0, 9, (48, 5)).astype("int32")
seen = random.integers(0, 2, (48, 5)).astype(bool)
y = random.integers(0, 3, 48).astype("int64")
weight = random.uniform(0.5, 1.5, 48).astype("float32")
found: dict[str, Any] = {}


def dense() -> keras.Model:
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


def words() -> keras.Model:
    ids, mask = keras.Input((5,), dtype="int32", name="ids"), keras.Input((5,), dtype="bool", name="mask")
    embedded = keras.layers.Embedding(9, 4)(ids)
    kept = keras.layers.Multiply()([embedded, keras.ops.expand_dims(keras.ops.cast(mask, "float32"), -1)])
    return keras.Model([ids, mask], [keras.layers.Dense(3)(keras.layers.Flatten()(kept))])


def compiled(make: Callable[[], keras.Model], **options: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = make()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9), loss, weighted_metrics=["accuracy"], jit_compile=False, **options
    )
    return model


class PerBatch(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(["begin", batch])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(["end", batch, dict(logs)])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(["epoch", epoch, sorted(logs)])


class StopAfter(keras.callbacks.Callback):
    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch:
            self.model.stop_training = True


def case(
    name: str,
    make: Callable[[], keras.Model],
    data: Callable[[int], dict[str, Any]],
    *,
    options: dict[str, Any] | None = None,
    steps: int | None = None,
    callbacks: Callable[[], list[Any]] = list,
    **arguments: Any,
) -> None:
    """data(batch size) -> x, y and the like. steps: an epoch's, of each rank."""
    entry = {}
    for who in ("ring", "plain"):
        model = compiled(make, **options or {})
        if who == "ring":
            ring.distribute(model, step=step)
        per_batch = PerBatch()
        given = data(batch if who == "ring" else batch * size)
        if steps:
            given["steps_per_epoch"] = steps * (size if who == "ring" else 1)
        history = model.fit(**given, **arguments, shuffle=False, verbose=0, callbacks=[per_batch, *callbacks()])
        entry[who] = {
            "history": history.history,
            "calls": per_batch.calls,
            "weights": [w.tolist() for w in model.get_weights()],
            "iterations": int(model.optimizer.iterations.numpy()),
        }
    found[name] = entry


def arrays(size_of_batch: int) -> dict[str, Any]:
    return {"x": x, "y": y, "batch_size": size_of_batch}


def dataset(size_of_batch: int) -> dict[str, Any]:
    return {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(size_of_batch)}


def of_words(size_of_batch: int) -> dict[str, Any]:
    rows = tf.data.Dataset.from_tensor_slices(({"ids": tokens, "mask": seen}, y, weight))
    return {"x": rows.batch(size_of_batch)}


def sparse(size_of_batch: int) -> dict[str, Any]:
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(size_of_batch)
    return {"x": rows.map(lambda a, b: (tf.sparse.from_dense(a), b))}


def of_sparse() -> keras.Model:
    inputs = keras.Input((6,), sparse=True)
    return keras.Model(inputs, keras.layers.Dense(3)(inputs))


validation = {"validation_data": (x[:24], y[:24]), "validation_batch_size": 8}
case("arrays", dense, arrays, epochs=2, **validation)
case("weights of samples", dense, lambda b: arrays(b) | {"sample_weight": weight}, epochs=2)
case("weights of classes", dense, dataset, epochs=2, class_weight={0: 1.0, 1: 2.0, 2: 0.5})
case("a data set", dense, dataset, epochs=3, initial_epoch=1)
case("an endless data set", dense, lambda b: {"x": dataset(b)["x"].repeat()}, epochs=3, steps=4)
case("several steps a call", dense, dataset, epochs=2, options={"steps_per_execution": 4})
case("stopped within an epoch", dense, dataset, epochs=3, callbacks=lambda: [StopAfter(2)])
case("tokens and masks", words, of_words, epochs=2)
if step == "fit":  # XLA takes no sparse tensors
    case("sparse tensors", of_sparse, sparse, epochs=2)
    case("eagerly", dense, arrays, epochs=1, options={"run_eagerly": True})
(out / f"rank{rank}.json").write_text(json.dumps(found))
