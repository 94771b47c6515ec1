"""Gradients added up in variables of the train step's own, applied every second step inside a condition.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)


class Accumulating(keras.Model):
    def __init__(self, *args, every=2, **kwargs):
        super().__init__(*args, **kwargs)
        self.every = every
        self.count = tf.Variable(0, trainable=False, dtype=tf.int32)
        self.sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.trainable_variables]

    def train_step(self, data):
        x, y = data
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(x, y, prediction)
        for total, gradient in zip(self.sums, tape.gradient(loss, self.trainable_variables)):
            total.assign_add(gradient / self.every)
        tf.cond(self.count % self.every == 0, self.update, lambda: None)
        return self.compute_metrics(x, y, prediction)

    def update(self):
        self.optimizer.apply_gradients(zip(self.sums, self.trainable_variables))
        for total in self.sums:
            total.assign(tf.zeros_like(total))


x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.randint(0, 3, 96)
inputs = keras.Input((4,))
outputs = keras.layers.Dense(3, activation="softmax")(keras.layers.Dense(8, activation="relu")(inputs))
model = Accumulating(inputs, outputs)
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
