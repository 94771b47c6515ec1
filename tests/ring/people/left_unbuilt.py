"""Layers that only an eager train step builds: what all ranks are to begin with is known when it has run.

refused: Call its layers on one batch before fit
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=8)


class Eager(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = layers.Dense(4, activation="relu"), layers.Dense(1)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.last(self.first(x))[:, 0] - y) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": float(loss.numpy())}


x = np.random.rand(64, 4).astype("float32")
model = Eager()
model.compile(optimizer="adam", run_eagerly=True)
ring.distribute(model)
history = model.fit(x, x.sum(1), batch_size=int(sys.argv[1]), epochs=2)
