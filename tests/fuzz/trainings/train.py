"""Train combinations one after the other: train.py OUT SEED [plain] NUMBER..., on one rank or two; `plain`: by Keras
without ring.

Writes OUT/NUMBER.RANKS.RANK.npz: what it began and ended with, and the history; or .txt, the refusal."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from profiles.errors import RingscopeError
from ringscope import ring
from tests.fuzz.trainings.between import asked, between
from tests.fuzz.trainings.combination import MASKED, TOKENS, draw

ring.init(seed=11)
RANKS = 2


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


def leading(data: Any, samples: int) -> Any:
    return None if data is None else keras.tree.map_structure(lambda a: a[:samples], data)


class Batches(keras.utils.PyDataset):
    def __init__(self, parts: Any, batch: int) -> None:
        super().__init__()
        self.parts, self.batch = parts, batch
        self.samples = len(keras.tree.flatten(parts)[0])

    def __len__(self) -> int:
        return -(-self.samples // self.batch)

    def __getitem__(self, i: int) -> Any:
        return keras.tree.map_structure(lambda a: a[i * self.batch : (i + 1) * self.batch], self.parts)


def data_of(drawn: dict[str, Any], x: Any, y: Any, weights: Any) -> dict[str, Any]:
    """Arguments for `fit`: the same samples, in batches that are those of all ranks together where there is one."""
    kind, batch, samples = drawn["data"], drawn["batch"], drawn["samples"]
    joined = batch * RANKS // ring.size()
    if kind == "arrays":
        used = samples // RANKS * RANKS
    elif kind in ("whole batches", "repeated"):
        used = samples // (batch * RANKS) * batch * RANKS
    else:
        used = min(samples, -(-samples // batch) // RANKS * RANKS * batch)
    none_left_over = used == samples
    if ring.size() > 1:  # what is left over they leave out themselves
        used = samples
    if kind == "arrays":
        own = {"x": leading(x, used), "y": leading(y, used), "sample_weight": leading(weights, used)}
        return own | {"batch_size": joined} | ({"validation_split": 0.25} if drawn["validation"] == "split" else {})
    parts = tuple(leading(part, used) for part in (x, y, weights) if part is not None)
    if kind == "py dataset":
        return {"x": Batches(parts, joined)}
    if kind == "generator":  # of a rank's own part

        def forever() -> Any:
            batches = Batches(parts, joined)
            while True:
                yield from (
                    batches[i] for i in range(ring.rank(), len(batches) // ring.size() * ring.size(), ring.size())
                )

        return {"x": forever(), "steps_per_epoch": 3} | ({"shard": False} if ring.size() > 1 else {})
    data = tf.data.Dataset.from_tensor_slices(parts)
    if kind == "repeated":
        steps = samples // (batch * RANKS) * ring.size()
        data = data.take(samples // (batch * RANKS) * batch * RANKS)
        return {"x": data.repeat().batch(joined), "steps_per_epoch": steps}
    counted = {}
    if kind == "unknown length":
        data = data.filter(lambda *_: True)
        counted = {"unknown_length": "count"} if drawn["counted"] and ring.size() > 1 else {}
        none_left_over = none_left_over and not drawn["counted"]  # who counts goes on with another order
    if drawn["kept"]:
        data = data.map(lambda *each: each).cache()
        data = data.shuffle(samples, seed=drawn["number"]) if none_left_over else data
    data = data.batch(joined, drop_remainder=kind == "whole batches")
    return {"x": data} | counted


def callback_of(drawn: dict[str, Any], folder: str) -> Any:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                self.model.stop_training = True

    monitored = "val_loss" if drawn["validation"] in ("data", "split") else "loss"
    return {
        "none": lambda: [],
        "early stopping": lambda: [keras.callbacks.EarlyStopping(monitored, min_delta=0.05, restore_best_weights=True)],
        "plateau": lambda: [keras.callbacks.ReduceLROnPlateau(monitored, patience=0, min_delta=0.1)],
        "rate by epoch": lambda: [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (1 + epoch))],
        "checkpoint": lambda: [
            keras.callbacks.ModelCheckpoint(f"{folder}/{{epoch}}.weights.h5", save_weights_only=True)
        ],
        "terminate on NaN": lambda: [keras.callbacks.TerminateOnNaN()],
        "stop in an epoch": lambda: [Stop()],
    }[drawn["callback"]]()


def compiled(model: keras.Model, drawn: dict[str, Any]) -> None:
    loss: Any = loss_of(drawn)
    metrics: Any = [metric_of(name) for name in drawn["metrics"]]
    if drawn["model"] == "two outputs":
        loss, metrics = {"one": loss, "two": "mse"}, {"one": metrics}
    model.compile(
        optimizer_of(drawn),
        loss,
        loss_weights={"one": 1.0, "two": 0.3} if drawn["model"] == "two outputs" else None,
        steps_per_execution=drawn["steps_per_execution"],
        run_eagerly=drawn["run_eagerly"],
        **{"weighted_metrics" if drawn["weighted metrics"] else "metrics": metrics},
    )


def train(drawn: dict[str, Any], *, plain: bool) -> dict[str, Any]:
    rng = np.random.default_rng(drawn["number"])
    keras.utils.set_random_seed(5)
    keras.config.set_dtype_policy(drawn["policy"])
    x, y, weights = inputs_of(drawn, rng), target_of(drawn, rng), None
    if drawn["weights"] in ("samples", "some of 0") or drawn["overflow"]:
        weights = weights_of(drawn, rng)

    def new() -> keras.Model:
        made = model_of(drawn)
        if not made.built:
            made(leading(x, 2))
        return made

    def ready(made: keras.Model) -> None:
        if not made.compiled or drawn["between"] != "loaded":
            compiled(made, drawn)
        if not plain:
            ring.distribute(made, step=drawn["step"], sharded=drawn["sharded"], **drawn["distribute"])

    model = new()
    if drawn["frozen"]:
        model.layers[-2].trainable = False
    trains = [any(v is each for each in model.trainable_variables) for v in model.weights]
    found: dict[str, Any] = {f"began {i}": v.numpy() for i, v in enumerate(model.weights) if trains[i]}
    ready(model)
    with tempfile.TemporaryDirectory() as folder:
        for again in range(1 + drawn["again"]):
            if again:
                model = between(model, drawn, (x, y, weights), folder, new, ready)
            options: dict[str, Any] = data_of(drawn, x, y, weights)
            if drawn["validation"] != "none":
                options["validation_batch_size"] = drawn["batch"]
            if drawn["validation"] in ("data", "every second epoch"):
                options["validation_data"] = tuple(leading(part, 25) for part in (x, y, weights) if part is not None)
                options["validation_freq"] = 2 if drawn["validation"] == "every second epoch" else 1
            if drawn["weights"] == "classes":
                options["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0}
            callbacks = callback_of(drawn, folder)
            history = model.fit(**options, epochs=drawn["epochs"], shuffle=False, verbose=0, callbacks=callbacks)
            found |= {f"history {again} {name}": np.array(values) for name, values in history.history.items()}
        found |= asked(model, drawn, (x, y, weights))
    found |= {f"ended {i}": v.numpy() for i, v in enumerate(model.weights) if trains[i]}
    moving = [v for v in model.non_trainable_variables if not v.path.endswith("seed_generator_state")]
    found |= {f"moving {i}": v.numpy() for i, v in enumerate(moving)}
    state: dict[str, Any] = {}
    model.optimizer.save_own_variables(state)  # whole, also where each rank has a part of it
    found |= {f"optimizer {i}": value for i, value in state.items()}
    if drawn["policy"] == "mixed_float16":
        found["scale"] = model.optimizer.dynamic_scale.numpy()
    return found


def main() -> None:
    out, seed = Path(sys.argv[1]), int(sys.argv[2])
    plain = sys.argv[3] == "plain"
    for number in sys.argv[3 + plain :]:
        path = out / f"{number}.{ring.size()}.{ring.rank()}"
        print(f"training {number}", flush=True)
        try:
            np.savez(path.with_name(path.name + ".npz"), **train(draw(int(number), seed), plain=plain))
        except (RingscopeError, ValueError, TypeError, tf.errors.OpError) as error:
            path.with_name(path.name + ".txt").write_text(f"{type(error).__name__}: {error}")
        keras.backend.clear_session()
        keras.config.set_dtype_policy("float32")


if __name__ == "__main__":
    main()
