"""A subclassed model with a train step of its own, on a data set without labels. usage: custom_train_step.py OUT BATCH
[STEP]"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from harness.doctor import equality
from ringscope import ring

ring.init()  # <- the first line


class Autoencoder(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.layers.Dense(6, activation="tanh")
        self.decoder = keras.layers.Dense(20)
        self.tracker = keras.metrics.Mean("reconstruction")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.decoder(self.encoder(x))

    def train_step(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - x))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        return {"reconstruction": self.tracker.result()}

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.tracker]


out, batch = Path(sys.argv[1]), int(sys.argv[2])
x = np.random.default_rng(0).normal(size=(320, 20)).astype("float32")
keras.utils.set_random_seed(ring.rank())
model = Autoencoder()
model.compile(optimizer=keras.optimizers.SGD(0.5, momentum=0.9))
ring.distribute(model, step=sys.argv[3] if sys.argv[3:] else "fit")  # <- the second line
model.fit(tf.data.Dataset.from_tensor_slices(x).batch(batch), epochs=2, verbose=0)
equality.save_weights(model, out / f"rank{ring.rank()}.npz")
