"""A train step that returns its losses as they are, without a metric, and stops by one of them (keras#15509).

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=79)
x = np.random.normal(size=(96, 6)).astype("float32")
x[::2] *= 3  # the ranks' halves are unlike


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3), keras.layers.Dense(6)])

    def train_step(self, x):
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.reduce_sum(tf.square(x - self.inner(x, training=True)), axis=-1))
            size = 1e-3 * tf.add_n([tf.reduce_sum(tf.square(w)) for w in self.inner.trainable_weights])
            total = error + size
        self.optimizer.apply(tape.gradient(total, self.trainable_weights), self.trainable_weights)
        return {"total": total, "error": error}


model = Autoencoder()
model.compile(keras.optimizers.SGD(0.02))
ring.distribute(model)
stops = keras.callbacks.EarlyStopping("total", patience=0, mode="max")
history = model.fit(x, batch_size=int(sys.argv[1]), epochs=4, shuffle=False, callbacks=[stops])
