"""A loss class and a metric class of one's own, the metric with state.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import ops

from ringscope import ring

ring.init(seed=45)


class FocalLoss(keras.losses.Loss):
    def __init__(self, gamma=2.0, name="focal"):
        super().__init__(name=name)
        self.gamma = gamma

    def call(self, y_true, y_pred):
        y_pred = ops.clip(y_pred, 1e-6, 1 - 1e-6)
        right = ops.where(y_true == 1, y_pred, 1 - y_pred)
        return ops.mean(-((1 - right) ** self.gamma) * ops.log(right), axis=-1)


class BinaryTruePositives(keras.metrics.Metric):
    def __init__(self, name="hits", **kwargs):
        super().__init__(name=name, **kwargs)
        self.hits = self.add_weight(name="hits", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = ops.logical_and(ops.equal(y_true, 1), ops.greater(y_pred, 0.5))
        self.hits.assign_add(ops.sum(ops.cast(found, self.dtype)))

    def result(self):
        return self.hits


x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.randint(0, 2, (96, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(1, "sigmoid")])
model.compile("adam", FocalLoss(), metrics=[BinaryTruePositives(), keras.metrics.F1Score(threshold=0.5)])
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, validation_data=(x[:40], y[:40]))
