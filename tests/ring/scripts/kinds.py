"""What weights of other types than float32 train to. usage: kinds.py OUT

Two ranks with batches of 8 in both step modes, one with 16 as `fit` trains; each rank writes, by case, its weights,
history, evaluation and predictions."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from asked import refused
from keras import layers

from ringscope import ring

ring.init(seed=7)
out = Path(sys.argv[1])
joined = 2 // ring.size()  # batches that one rank takes at once
random = np.random.default_rng(0)
X, Y, WORDS = random.normal(size=(64, 6)).astype("float32"), random.integers(0, 3, 64), random.integers(0, 20, (64, 5))
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
Built = Callable[[], keras.Model]


def dense(policy: str, *inner: Any) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    return keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="tanh"), *inner, layers.Dense(3)])


def words(policy: str, rows: str) -> keras.Model:
    keras.config.set_dtype_policy(policy)
    inner = [layers.Embedding(20, 4, dtype=rows), layers.Flatten(), layers.Dense(3)]
    return keras.Sequential([keras.Input((5,)), *inner])


CASES: dict[str, tuple[Built, dict[str, Any]]] = {
    "bfloat16": (lambda: dense("bfloat16"), {}),
    "float16": (lambda: dense("float16"), {}),
    "float64": (lambda: dense("float64"), {}),
    "four types": (
        lambda: dense("float32", *(layers.Dense(8, dtype=kind) for kind in ("bfloat16", "float16", "float64"))),
        {},
    ),
    "rows of bfloat16": (lambda: words("float32", "bfloat16"), {}),
    "normalised over ranks": (lambda: dense("bfloat16", layers.BatchNormalization(synchronized=True)), {}),
    "divided before": (lambda: dense("bfloat16"), {"predivide_factor": 2.0}),
    "two steps": (lambda: dense("bfloat16"), {"aggregate": 2}),
}


def numbers(values: Any) -> Any:
    return np.asarray(values, float).tolist()


def trained(build: Built, step: str, **options: Any) -> dict[str, Any]:
    keras.utils.set_random_seed(3)
    model = build()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss_of)
    ring.distribute(model, step=step, **options)
    x = WORDS if model.input_shape == (None, 5) else X
    began = [np.asarray(w, float) for w in model.weights]
    path = str(out / f"{step}.{ring.size()}.keras")
    save = keras.callbacks.ModelCheckpoint(path)
    model.fit(x, Y, batch_size=8 * joined, epochs=3, shuffle=False, verbose=0, callbacks=[save])
    found = {
        "weights": [numbers(w).copy() for w in model.weights],
        "types": [w.dtype for w in model.weights],
        "change": max(float(np.max(np.abs(np.asarray(w) - b))) for w, b in zip(model.weights, began, strict=True)),
        "evaluated": model.evaluate(x, Y, batch_size=16, verbose=0),
        "predicted": numbers(model.predict(x, batch_size=16, verbose=0)),
    }
    again = keras.models.load_model(path)
    found["loaded"] = [numbers(w) for w in again.weights]
    return found


def own_loop(compiled: bool) -> dict[str, Any]:
    """Each rank's half of every batch, the gradients averaged by `ring.average_gradients`."""
    keras.utils.set_random_seed(3 + ring.rank())
    model, optimizer = words("bfloat16", "bfloat16"), keras.optimizers.SGD(0.5)
    keras.utils.set_random_seed(3)
    for weight in model.weights:
        weight.assign(random_like(weight) if ring.rank() == 0 else weight * 0)
    ring.broadcast(model)

    def train(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(ring.average_gradients(gradients), model.trainable_variables)

    step = tf.function(train, autograph=False) if compiled else train
    for first in range(8 * joined * ring.rank(), 64, 16):
        rows = slice(first, first + 8 * joined)
        step(tf.constant(WORDS[rows]), tf.constant(Y[rows]))
    return {"weights": [numbers(w) for w in model.weights], "types": [w.dtype for w in model.weights], "change": 1.0}


def random_like(weight: Any) -> Any:
    return tf.cast(keras.random.uniform(weight.shape, -0.5, 0.5, dtype="float32", seed=1), weight.dtype)


found: dict[str, Any] = {}
for name, (build, options) in CASES.items():
    for step in ("fit", "compiled") if ring.size() > 1 else ("fit",):
        found[f"{name}, {step}"] = trained(build, step, **options)
        keras.backend.clear_session(free_memory=False)
for compiled in (False, True):
    found[f"a loop of one's own, {'compiled' if compiled else 'fit'}"] = own_loop(compiled)
if ring.size() > 1:
    found["sharded"] = refused(lambda: trained(lambda: dense("bfloat16"), "fit", sharded=True))
(out / f"{ring.size()}ranks{ring.rank()}.json").write_text(json.dumps(found))
