"""Train steps that add to what `compute_loss` gives: a mean of what a mask keeps, a root of a mean; a
compute_loss of the model's own beside them, the last batch smaller.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=98)
x = np.random.normal(size=(56, 5)).astype("float32") * np.linspace(0.3, 2, 56)[:, None].astype("float32")
y = (x[:, :1] + np.linspace(-1, 1, 56)[:, None]).astype("float32")


class Beside(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            large = tf.cast(y > 0.5, tf.float32)
            loss = self.compute_loss(x, y, p)
            loss += tf.reduce_sum(large * tf.abs(y - p)) / (tf.reduce_sum(large) + 1e-6)
            loss += 0.1 * tf.sqrt(tf.reduce_mean(tf.square(p)) + 1e-4)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip([0.5 * (g + 0.01 * v) for g, v in zip(gradients, self.trainable_variables)], self.trainable_variables)
        )
        return {"loss": loss}


class Own(Beside):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        far = tf.cast(tf.abs(x[:, :1]) > 1, tf.float32)
        return tf.reduce_sum(far * tf.square(y - y_pred)) / (tf.reduce_sum(far) + 1.0)


models = []
for kind in (Beside, Own):
    inputs = keras.Input((5,))
    model = kind(inputs, layers.Dense(1)(layers.Dense(6, activation="tanh")(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    ring.distribute(model)
    model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=0)
    models.append(model)
