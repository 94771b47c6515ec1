"""What a training is made of: data, a model, losses, an optimizer and metrics, as drawn."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.fuzz.trainings.combination import MASKED, TOKENS


def inputs_of(drawn: dict[str, Any], rng: Any) -> Any:
    n = drawn["samples"]
    if drawn["model"] in MASKED:
        words = rng.integers(1, 9, (n, 6))
        # More of the samples that come first are padding, so that the ranks' shares of it differ.
        return words * (np.arange(6) < rng.integers(1, 7, n)[:, None])
    if drawn["model"] == "conv":
        return rng.normal(size=(n, 6, 6, 2)).astype("float32")
    if drawn["model"] == "two outputs":
        return {"a": rng.normal(size=(n, 4)).astype("float32"), "b": rng.normal(size=(n, 3)).astype("float32")}
    return rng.normal(size=(n, 4)).astype("float32")


def target_of(drawn: dict[str, Any], rng: Any) -> Any:
    shape = (drawn["samples"], 6) if drawn["model"] in TOKENS else (drawn["samples"],)
    one = {
        "numbers": rng.normal(size=(*shape, 1)).astype("float32"),
        "binary": rng.integers(0, 2, (*shape, 1)).astype("float32"),
        "classes": rng.integers(0, 3, shape),
    }[drawn["target"]]
    if drawn["model"] == "two outputs":
        return {"one": one, "two": rng.normal(size=(drawn["samples"], 2)).astype("float32")}
    return one


def weights_of(drawn: dict[str, Any], rng: Any) -> Any:
    shape = (drawn["samples"], 6) if drawn["model"] in TOKENS else (drawn["samples"],)
    weights = rng.uniform(0.2, 3, shape).astype("float32")
    if drawn["weights"] == "some of 0":
        weights[: drawn["samples"] // 2] = 0
    if drawn["overflow"]:  # one sample of each epoch's first batch, on one of the ranks
        weights[0] = 1e30
    if drawn["model"] == "two outputs":
        return {"one": weights, "two": weights[::-1].copy()}
    return weights


class Adds(layers.Layer):
    """Adds to the loss what it sees, or its own weights."""

    def __init__(self, added: str) -> None:
        super().__init__()
        self.added = added

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x: Any) -> Any:
        seen = keras.ops.square(x)
        per_sample = 0.01 * keras.ops.sum(seen, axis=tuple(range(1, len(x.shape))))
        own = 0.1 * keras.ops.sum(keras.ops.square(self.scale))
        sums = {"a sum": lambda: keras.ops.sum(per_sample), "a mean": lambda: keras.ops.mean(per_sample)}
        self.add_loss(keras.ops.cast(sums.get(self.added, lambda: own)(), "float32"))
        return x * self.scale


class OwnStep(keras.Model):
    """Subclassed, with a train step of its own, built by its first batch."""

    def __init__(self, last: Any) -> None:
        super().__init__()
        self.inner = keras.Sequential([layers.Dense(6, activation="tanh"), layers.Dense(5)])
        self.last = last

    def call(self, x: Any) -> Any:
        return self.last(self.inner(x))

    def train_step(self, data: Any) -> Any:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(x, y, prediction, weights)
            self._loss_tracker.update_state(loss, sample_weight=tf.shape(x)[0])
            scaled = self.optimizer.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, self.trainable_weights), self.trainable_weights)
        return self.compute_metrics(x, y, prediction, weights)


def model_of(drawn: dict[str, Any]) -> keras.Model:
    kind, classes = drawn["model"], 3 if drawn["target"] == "classes" else 1
    constraint = keras.constraints.MaxNorm(0.8) if drawn["constrained"] else None
    own = "float64" if drawn["policy"] == "float64" else "float32"
    last: Any = layers.Dense(classes, name="one", dtype=own, kernel_constraint=constraint)
    if drawn["added"] != "nothing" and kind != "two outputs":
        last = keras.Sequential([Adds(drawn["added"]), last])
    if kind == "two outputs":
        a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
        hidden = layers.Dense(6, activation="tanh")(layers.concatenate([a, b]))
        return keras.Model({"a": a, "b": b}, {"one": last(hidden), "two": layers.Dense(2, name="two")(hidden)})
    if kind == "subclassed":
        return OwnStep(last)
    if kind in MASKED:
        body = {
            "tokens": [layers.Dense(5, activation="tanh")],
            "pooled": [layers.GlobalAveragePooling1D()],
            "recurrent": [layers.GRU(4)],
        }[kind]
        return keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(9, 5, mask_zero=True), *body, last])
    if kind == "conv":
        body = [layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
        return keras.Sequential([keras.Input((6, 6, 2)), *body, last])
    body = {
        "dense": [layers.Dense(6, activation="relu"), layers.LayerNormalization()],
        "synchronised": [layers.Dense(6, use_bias=False), layers.BatchNormalization(synchronized=True)],
        "regularised": [layers.Dense(6, kernel_regularizer="l2", activity_regularizer=keras.regularizers.L2(0.1))],
    }[kind]
    return keras.Sequential([keras.Input((4,)), *body, last])


def loss_of(drawn: dict[str, Any]) -> Any:
    name, reduction = drawn["loss"], drawn["reduction"]
    if name == "a scalar":
        return lambda y, p: keras.ops.mean(keras.ops.square(keras.ops.cast(y, p.dtype) - p))
    if name == "one a sample":
        return lambda y, p: keras.ops.sum(keras.ops.abs(keras.ops.cast(y, p.dtype) - p), axis=-1)
    options: dict[str, Any] = {} if drawn["target"] == "numbers" or name == "Hinge" else {"from_logits": True}
    if name in ("binary_crossentropy", "sparse_categorical_crossentropy"):
        return lambda y, p: getattr(keras.losses, name)(y, p, **options)
    return getattr(keras.losses, name)(reduction=reduction, **options) if name[0].isupper() else name


def optimizer_of(drawn: dict[str, Any]) -> Any:
    rate: Any = 0.002 if drawn["reduction"] in ("sum", "none") else 0.02
    if drawn["schedule"]:
        rate = keras.optimizers.schedules.ExponentialDecay(rate, 3, 0.7)
    name, _, more = drawn["optimizer"].partition(" with ")
    options = drawn["clip"] | drawn["further"] | {"": {}, "momentum": {"momentum": 0.9}}.get(more, {more: True})
    options |= {"momentum": 0.9} if more == "nesterov" else {}
    options |= {"weight_decay": drawn["decay"]} if drawn["decay"] else {}
    made = getattr(keras.optimizers, name)(rate, **options)
    # A scale that would have to come down first does so after other steps on two ranks: their gradients are larger.
    # Batches that overflow do so at any scale.
    return keras.optimizers.LossScaleOptimizer(made, **drawn["scale"]) if drawn["policy"] == "mixed_float16" else made


def metric_of(name: str) -> Any:
    made = {
        "F1Score": lambda: keras.metrics.F1Score(threshold=0.5),
        "AUC": lambda: keras.metrics.AUC(from_logits=True),
    }
    return made[name]() if name in made else getattr(keras.metrics, name)() if name[0].isupper() else name
