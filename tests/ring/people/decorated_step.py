"""A train step that is a tf.function itself, and one that calls tf.functions of its own, which update.

joined: 1e-4, means over samples
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=2)
x = np.random.default_rng(0).normal(size=(64, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)


class Decorated(keras.Sequential):
    @tf.function
    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class ByParts(keras.Sequential):
    """Two updates a step, each by a tf.function."""

    def compile(self, first, second):
        super().compile(first)
        self.second = second

    @tf.function
    def lower(self, inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, self(inputs, training=True))
        own = self.layers[0].trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, own), own))
        return loss

    @tf.function
    def upper(self, inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, self(inputs, training=True))
        own = self.layers[1].trainable_variables
        self.second.apply_gradients(zip(tape.gradient(loss, own), own))
        return loss

    def train_step(self, data):
        for _ in range(2):
            loss = self.lower(*data) + self.upper(*data)
        return {"loss": loss}


def parts():
    return [keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(1)]


batch = int(sys.argv[1])
one = Decorated(parts())
one.compile(keras.optimizers.SGD(0.1))
ring.distribute(one)
first = one.fit(x, y, batch_size=batch, epochs=2, shuffle=False).history
two = ByParts(parts())
two.compile(keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.05, momentum=0.9))
ring.distribute(two)
second = two.fit(x, y, batch_size=batch, epochs=2, shuffle=False).history
