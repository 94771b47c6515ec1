"""Targets as an input: a layer at the end that adds its loss and keeps its metric, compiled without a loss.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=3)


class LogisticEndpoint(layers.Layer):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.accuracy_metric = keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)

    def call(self, targets, logits):
        self.add_loss(self.loss_fn(targets, logits))
        self.accuracy_metric.update_state(targets, logits)
        return ops.sigmoid(logits)


inputs, targets = keras.Input((3,), name="inputs"), keras.Input((1,), name="targets")
predictions = LogisticEndpoint(name="predictions")(targets, layers.Dense(1)(layers.Dense(6, "relu")(inputs)))
model = keras.Model([inputs, targets], predictions)
model.compile("adam")
ring.distribute(model)
data = {
    "inputs": np.random.normal(size=(50, 3)).astype("float32"),
    "targets": np.random.randint(0, 2, (50, 1)).astype("float32"),
}
history = model.fit(data, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
