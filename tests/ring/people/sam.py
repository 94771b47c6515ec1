"""Sharpness-aware minimisation: a step up along the own gradient, the gradient there, and back, which rounds otherwise.

refused: average the gradients first: ring.average_gradients(gradients)
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)


class SAM(keras.Model):
    def __init__(self, inner, rho=0.05):
        super().__init__()
        self.inner, self.rho = inner, rho

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.inner.trainable_variables
        gradients = tape.gradient(loss, variables)
        norm = tf.linalg.global_norm(gradients)
        ups = [g * self.rho / (norm + 1e-12) for g in gradients]
        for v, up in zip(variables, ups):
            v.assign_add(up)
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(x, y, prediction)
        gradients = tape.gradient(loss, variables)
        for v, up in zip(variables, ups):
            v.assign_sub(up)
        self.optimizer.apply_gradients(zip(gradients, variables))
        return self.compute_metrics(x, y, prediction)


x, y = np.random.normal(size=(64, 6)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
model = SAM(keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]))
model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2)
