"""Adversarial examples: a step that trains on its batch and on what fools the model, and returns every metric's result.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=80)


class Adversarial(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(x, y, self(x, training=True))
        fooling = x + 0.1 * tf.sign(tape.gradient(loss, x))
        with tf.GradientTape() as tape:
            predicted = self(tf.concat([x, fooling], 0), training=True)
            loss = self.compute_loss(x, tf.concat([y, y], 0), predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(tf.concat([y, y], 0), predicted)
        return {metric.name: metric.result() for metric in self.metrics}


x, y = np.random.normal(size=(96, 5)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
inputs = keras.Input((5,))
model = Adversarial(inputs, keras.layers.Dense(1)(keras.layers.Dense(7, activation="tanh")(inputs)))
model.compile("adam", "mse", metrics=["mae"])
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
