"""Weights' squares added by hand: in a loss beside each sample's, in a loss of one number, in a train step; a
callback changes their share from epoch to epoch. The last batch is smaller.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring

ring.init(seed=91)
x = np.random.normal(size=(52, 5)).astype("float32") * np.linspace(0.3, 2, 52)[:, None].astype("float32")
y = (x[:, :1] > 0).astype("float32")
share = keras.Variable(0.1, trainable=False, name="share")


class Anneal(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        share.assign(0.1 / (1 + epoch))


class Decayed(keras.Model):
    def train_step(self, data):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = self.compute_loss(x, y, p, weight)
            loss += share * tf.add_n([tf.nn.l2_loss(v) for v in self.trainable_variables if "kernel" in v.path])
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return self.compute_metrics(x, y, p, weight) | {"loss": loss}


def made(kind):
    inputs = keras.Input((5,))
    h = layers.Dense(6, activation="tanh")(inputs)
    outputs = layers.Dense(1, activation="sigmoid")(h)
    return (Decayed if kind == "step" else keras.Model)(inputs, outputs)


models = []
for kind in ("each", "one", "step", "mixed"):
    model = made(kind)
    kernel = model.layers[1].kernel

    def each(y, p, kernel=kernel):
        return keras.losses.binary_crossentropy(y, p) + share * ops.sum(ops.square(kernel))

    def one(y, p, kernel=kernel):
        return tf.reduce_mean(tf.square(y - p)) + share * tf.nn.l2_loss(kernel)

    def mixed(y, p, kernel=kernel):
        alpha = tf.convert_to_tensor(share)
        return alpha * tf.reduce_mean(tf.abs(y - p)) + (1 - alpha) * tf.sqrt(tf.reduce_mean(tf.square(y - p)) + 1e-6)

    model.compile(
        keras.optimizers.SGD(0.2), {"each": each, "one": one, "step": "mse", "mixed": mixed}[kind], metrics=["mae"]
    )
    ring.distribute(model)
    weights = {"sample_weight": np.linspace(0, 2, 52)} if kind == "step" else {}
    model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=0, callbacks=[Anneal()], **weights)
    models.append(model)
