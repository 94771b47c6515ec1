"""Several tasks weighed by their learnt uncertainty, in a layer's add_loss, in compute_loss and in a train step.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring

ring.init(seed=74)
x = np.random.normal(size=(64, 5)).astype("float32")
y = {"size": x[:, :1] * 2, "kind": (x[:, 1] > 0).astype("int32")}


class Weighed(layers.Layer):
    """Takes answers and labels, adds exp(-s) loss + s for each task."""

    def build(self, shape):
        self.s = self.add_weight(shape=(2,), initializer="zeros", name="s")

    def call(self, inputs):
        size, kind, p_size, p_kind = inputs
        losses = (
            ops.mean(keras.losses.mean_squared_error(size, p_size)),
            ops.mean(keras.losses.sparse_categorical_crossentropy(kind, p_kind, from_logits=True)),
        )
        self.add_loss(sum(ops.exp(-self.s[i]) * loss + self.s[i] for i, loss in enumerate(losses)))
        return p_size


class Computed(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.s = self.add_weight(shape=(2,), initializer="zeros", name="s")

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        size = ops.mean(keras.losses.mean_squared_error(y["size"], y_pred["size"]))
        kind = ops.mean(keras.losses.sparse_categorical_crossentropy(y["kind"], y_pred["kind"], from_logits=True))
        return ops.exp(-self.s[0]) * size + self.s[0] + ops.exp(-self.s[1]) * kind + self.s[1]


class Stepped(Computed):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            each = tf.stack(
                [
                    tf.reduce_mean((y["size"] - p["size"]) ** 2),
                    tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y["kind"], p["kind"])),
                ]
            )
            s = tf.convert_to_tensor(self.s)
            loss = tf.reduce_sum(tf.exp(-s) * each + s)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"loss": loss}


def tower():
    inputs = keras.Input((5,))
    h = layers.Dense(6, activation="relu")(inputs)
    return inputs, {"size": layers.Dense(1)(h), "kind": layers.Dense(2)(h)}


models = []
for kind in ("layer", Computed, Stepped):
    inputs, outputs = tower()
    if kind == "layer":
        size, label = keras.Input((1,), name="size"), keras.Input((), name="label", dtype="int32")
        out = Weighed()([size, label, outputs["size"], outputs["kind"]])
        model, data = keras.Model([inputs, size, label], out), ([x, y["size"], y["kind"]],)
    else:
        model, data = kind(inputs, outputs), (x, y)
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-3))
    ring.distribute(model)
    model.fit(*data, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=0)
    models.append(model)
