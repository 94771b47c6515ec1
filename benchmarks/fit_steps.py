"""Models with a `train_step` of their own, which updates more than once or goes on after the update.

    python -m benchmarks.peers.fit_keras --way ring --model gan

Made as the families are, for `benchmarks.peers.fit_keras` alone. Such a step is written for one backend, so there is
none of Keras on JAX; beside it stands `--way plain`, which compiles it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.fit_families import Batch, Family

SIDE, NOISE = 64, 128


def _faces(random: np.random.Generator, samples: int) -> Batch:
    return random.integers(0, 256, (samples, SIDE, SIDE, 3), np.uint8), np.zeros(samples, np.int32)


def _seen(widths: tuple[int, ...]) -> Any:
    """Convolutions of stride 2 over pictures, and what they end in for each."""
    import keras
    from keras import layers as parts

    x = inputs = keras.Input((SIDE, SIDE, 3))
    for width in widths:
        x = parts.LeakyReLU(0.2)(parts.Conv2D(width, 4, strides=2, padding="same")(x))
    return keras.Model(inputs, parts.Flatten()(x))


def _pictures(x: Any) -> Any:
    import tensorflow as tf

    return tf.cast(x, tf.float32) / 127.5 - 1


def gan() -> Any:
    """DCGAN: two networks by turns, each with an optimizer of its own."""
    import keras
    import tensorflow as tf
    from keras import layers as parts

    def drawn() -> Any:
        x = inputs = keras.Input((NOISE,))
        x = parts.Reshape((4, 4, 512))(parts.Dense(4 * 4 * 512)(x))
        for width in (512, 256, 128):
            x = parts.Conv2DTranspose(width, 4, strides=2, padding="same", use_bias=False)(x)
            x = parts.ReLU()(parts.BatchNormalization()(x))
        x = parts.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh", dtype="float32")(x)
        return keras.Model(inputs, x)

    class Gan(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="gan")
            self.drawn, self.judged = drawn(), keras.Sequential([_seen((128, 256, 512, 512)), parts.Dense(1)])
            self.seeds = keras.random.SeedGenerator(1)
            self.loss = keras.metrics.Mean(name="loss")
            self.judged.build((None, SIDE, SIDE, 3))
            self.built = True

        def compile(self, optimizer: Any, loss: Any) -> None:
            super().compile(optimizer)
            self.judges = optimizer.from_config(optimizer.get_config())

        def call(self, x: Any) -> Any:
            return self.judged(x)

        def train_step(self, data: Any) -> Any:
            real, truth = _pictures(data[0]), keras.losses.BinaryCrossentropy(from_logits=True)
            ones = tf.ones([tf.shape(real)[0], 1])
            noise = keras.random.normal((tf.shape(real)[0], NOISE), seed=self.seeds)
            with tf.GradientTape() as tape:
                judged = self.judged(tf.concat([real, self.drawn(noise, training=True)], 0), training=True)
                loss = truth(tf.concat([ones, 0 * ones], 0), judged)
            self.judges.apply(tape.gradient(loss, self.judged.trainable_variables), self.judged.trainable_variables)
            with tf.GradientTape() as tape:
                fooled = truth(ones, self.judged(self.drawn(noise, training=True), training=True))
            self.optimizer.apply(tape.gradient(fooled, self.drawn.trainable_variables), self.drawn.trainable_variables)
            self.loss.update_state(loss + fooled)
            return {"loss": self.loss.result()}

    return Gan()


def teacher() -> Any:
    """Two views of each picture, by a network and by a teacher that follows it after every update (BYOL)."""
    import keras
    import tensorflow as tf
    from keras import layers as parts

    def network() -> Any:
        seen = _seen((64, 128, 256, 512))
        return keras.Sequential([seen, parts.Dense(1024, "relu"), parts.BatchNormalization(), parts.Dense(256)])

    class Student(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="teacher")
            self.student, self.teacher = network(), network()
            self.guess = keras.Sequential([keras.Input((256,)), parts.Dense(1024, "relu"), parts.Dense(256)])
            for part in (self.student, self.teacher):
                part.build((None, SIDE, SIDE, 3))
            self.teacher.trainable = False
            self.loss = keras.metrics.Mean(name="loss")
            self.built = True

        def compile(self, optimizer: Any, loss: Any) -> None:
            super().compile(optimizer)

        def call(self, x: Any) -> Any:
            return self.student(x)

        def train_step(self, data: Any) -> Any:
            x = _pictures(data[0])
            views = x, tf.reverse(x, [2])
            aims = [tf.stop_gradient(self.teacher(view, training=True)) for view in reversed(views)]
            with tf.GradientTape() as tape:
                guesses = [self.guess(self.student(view, training=True), training=True) for view in views]
                loss = tf.add_n([keras.losses.cosine_similarity(*pair) for pair in zip(guesses, aims, strict=True)])
                loss = tf.reduce_mean(loss)
            own = self.student.trainable_variables + self.guess.trainable_variables
            self.optimizer.apply(tape.gradient(loss, own), own)
            for slow, fast in zip(self.teacher.weights, self.student.weights, strict=True):
                if fast.dtype == "float32":
                    slow.assign(0.99 * slow + 0.01 * fast)
            self.loss.update_state(loss)
            return {"loss": self.loss.result()}

    return Student()


STEPS = {"gan": Family(gan, _faces, 128), "teacher": Family(teacher, _faces, 256)}
