"""Denominators in places of their own: weights that compute_loss gives to Keras's part, a layer's helper that adds a
loss, a loss of one number that is not reduced, alone and beside a loss per sample. The last batch is smaller.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=8)
BATCH = int(sys.argv[1])
rng = np.random.default_rng(0)
more = np.linspace(0.05, 0.9, 92)[:, None]  # samples are not alike, so that the ranks' denominators differ
rows = rng.normal(size=(92, 6)).astype("float32")
found = (rng.random((92, 5)) < more).astype("float32")
weights = rng.uniform(0, 2, 92).astype("float32") * more[:, 0].astype("float32")


class Detector(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        by_positives = ops.ones_like(y[:, 0]) / ops.maximum(ops.sum(y), 1.0)
        return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=by_positives)


class Large(layers.Layer):
    def call(self, h):
        self._held(h)
        return h

    def _held(self, h):
        large = ops.cast(h > 1.2, "float32")
        self.add_loss(ops.sum(large * ops.square(h)) / (ops.sum(large) + 1))


class OneNumber(keras.losses.Loss):
    def __init__(self):
        super().__init__(reduction="none")

    def call(self, y, p):
        return ops.mean(ops.square(y - p))


def made(kind=keras.Model, *between):
    inputs = hidden = keras.Input((6,))
    for layer in (layers.Dense(4), *between, layers.Dense(5)):
        hidden = layer(hidden)
    return kind(inputs, hidden)


def of_two():
    inputs = keras.Input((6,))
    return keras.Model(inputs, [layers.Dense(5)(inputs), layers.Dense(5)(inputs)])


per_sample = keras.losses.MeanSquaredError(reduction="none")
models, results = [], []
for model, loss, labels, given in (
    (made(Detector), keras.losses.MeanAbsoluteError(), found, None),
    (made(keras.Model, Large()), "mse", found, None),
    (made(), OneNumber(), found, weights),
    (of_two(), [OneNumber(), per_sample], [found, found], [weights, weights]),
):
    model.compile(keras.optimizers.SGD(0.02), loss)
    ring.distribute(model)
    history = model.fit(rows, labels, sample_weight=given, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    results.append(history.history["loss"])
    models.append(model)
