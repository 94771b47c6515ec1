"""A layer that takes labels, adds its loss and keeps a metric of its own, as in Keras's guide; a sparsity of activities
against a target, a layer's own counter of steps that warms a term up.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=92)


class LogisticEndpoint(layers.Layer):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.accuracy_metric = keras.metrics.BinaryAccuracy(name="accuracy")

    def call(self, targets, logits, sample_weight=None):
        self.add_loss(self.loss_fn(targets, logits, sample_weight))
        self.accuracy_metric.update_state(targets, logits, sample_weight)
        return ops.softmax(logits)


class Sparse(layers.Layer):
    """Kullback-Leibler of the mean activity of each unit against a target, warmed up over steps."""

    def build(self, shape):
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, dtype="int32", name="steps")

    def call(self, h, training=False):
        if training:
            self.steps.assign_add(1)
        rho = ops.mean(ops.sigmoid(h), axis=0)
        warm = ops.minimum(1.0, ops.cast(self.steps, "float32") / 8)
        self.add_loss(warm * ops.sum(0.1 * ops.log(0.1 / rho) + 0.9 * ops.log(0.9 / (1 - rho))))
        return h


inputs, targets = keras.Input((3,), name="inputs"), keras.Input((4,), name="targets")
h = Sparse()(layers.Dense(5)(inputs))
model = keras.Model([inputs, targets], LogisticEndpoint(name="predictions")(targets, layers.Dense(4)(ops.tanh(h))))
data = {
    "inputs": np.random.normal(size=(64, 3)).astype("float32") * np.linspace(0.3, 2, 64)[:, None],
    "targets": np.random.randint(0, 2, (64, 4)).astype("float32"),
}
model.compile(optimizer=keras.optimizers.Adam(1e-2, epsilon=1e-3))
ring.distribute(model)
history = model.fit(data, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
