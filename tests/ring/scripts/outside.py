"""Train steps that read variables which their model does not hold, on two ranks: python outside.py OUT.

Writes OUT/rank<k>.json: by case and kind of step the lines that ring said of such variables."""

import contextlib
import io
import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=4)
out, rank = Path(sys.argv[1]), ring.rank()
x = np.random.normal(size=(64, 4)).astype("float32")
y = np.random.randint(0, 3, size=64)


class Centres(keras.Model):
    """A table of class centres that a step pulls to its features, and the features to it."""

    joined = False

    def __init__(self, step: str) -> None:
        super().__init__()
        self.hidden, self.last = keras.layers.Dense(2), keras.layers.Dense(3)
        vars(self)["centres"] = tf.Variable(tf.zeros([3, 2]), trainable=False, name=f"centres_{step}")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.last(self.hidden(x))

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = data
        with tf.GradientTape() as tape:
            features = self.hidden(x)
            apart = features - tf.gather(self.centres, y)
            loss = self.compute_loss(x, y, self.last(features)) + tf.reduce_mean(apart**2)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        each = tf.one_hot(y, 3)[:, :, None] * apart[:, None, :]
        self.centres.assign_add(0.5 * (ring.sum(each, 0) if self.joined else tf.reduce_sum(each, 0)) / 16)
        return self.compute_metrics(x, y, self.last(features))


class JoinedCentres(Centres):
    joined = True


def network() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(3)])


class Noisy(keras.Sequential):
    """Noise of a generator and of a seed, which are each rank's own, and a teacher, which is the same on all."""

    def __init__(self) -> None:
        super().__init__([keras.Input((4,)), keras.layers.Dropout(0.1), keras.layers.Dense(3)])
        generator = tf.random.Generator.from_seed(rank)
        vars(self)["own"] = generator, tf.Variable([rank, 7]), tf.Variable(tf.zeros([4, 3]))

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = data
        generator, seed, teacher = self.own
        x += 0.01 * (tf.random.stateless_normal(tf.shape(x), seed) + generator.normal(tf.shape(x)))
        logs = super().train_step((x, y))
        teacher.assign(0.9 * teacher + 0.1 * self.layers[-1].kernel)
        return logs


def watched(seen: keras.metrics.Metric) -> keras.Model:
    """A model with a metric that only a loss of the script's own knows."""
    model = network()

    def loss(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
        seen.update_state(each)
        return each

    model.own_loss = loss
    return model


def said_by(model: keras.Model, step: str, **options: object) -> list[str]:
    loss = getattr(model, "own_loss", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.build((None, 4))
    ring.distribute(model, step=step, **options)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    return [line for line in said.getvalue().splitlines() if "does not hold" in line]


CASES = {
    "centres": lambda step: said_by(Centres(step), step),
    "centres of all ranks": lambda step: said_by(JoinedCentres(step), step),
    "metric": lambda step: said_by(watched(keras.metrics.Mean(name=f"seen_{step}")), step),
    "aggregated": lambda step: said_by(network(), step, aggregate=2),
    "sharded": lambda step: said_by(network(), step, sharded=True),
    "noise": lambda step: said_by(Noisy(), step),
}
facts = {f"{name}, {step}": case(step) for step in ("fit", "compiled") for name, case in CASES.items()}
(out / f"rank{rank}.json").write_text(json.dumps(facts))
