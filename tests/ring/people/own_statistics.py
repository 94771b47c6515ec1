"""Metrics with several variables of their own: a correlation from five sums, a confusion matrix, a dictionary of
results, a largest error; F1, AUC, MeanIoU and precision at a recall beside them.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=77)
batch = int(sys.argv[1])


class Correlation(keras.metrics.Metric):
    def __init__(self, name="correlation"):
        super().__init__(name=name)
        self.sums = self.add_variable((5,), "zeros", name="sums")
        self.n = self.add_variable((), "zeros", name="n")

    def update_state(self, y, p, sample_weight=None):
        y, p = ops.reshape(ops.cast(y, "float32"), [-1]), ops.reshape(p, [-1])
        self.sums.assign_add(ops.stack([ops.sum(v) for v in (y, p, y * y, p * p, y * p)]))
        self.n.assign_add(ops.cast(ops.size(y), "float32"))

    def result(self):
        y, p, yy, pp, yp = (self.sums[i] / ops.maximum(self.n, 1) for i in range(5))
        return (yp - y * p) / ops.sqrt((yy - y * y) * (pp - p * p) + 1e-7)


class Confusion(keras.metrics.Metric):
    def __init__(self, name="confusion"):
        super().__init__(name=name)
        self.matrix = self.add_weight(shape=(2, 2), initializer="zeros", name="matrix", dtype="int32")

    def update_state(self, y, p, sample_weight=None):
        y, p = ops.cast(ops.reshape(y, [-1]), "int32"), ops.cast(ops.reshape(p, [-1]) > 0.5, "int32")
        self.matrix.assign(
            self.matrix + ops.matmul(ops.transpose(ops.one_hot(y, 2, dtype="int32")), ops.one_hot(p, 2, dtype="int32"))
        )

    def result(self):
        m = ops.cast(self.matrix, "float32")
        return {
            "sensitivity": m[1, 1] / (m[1, 0] + m[1, 1] + 1e-7),
            "specificity": m[0, 0] / (m[0, 0] + m[0, 1] + 1e-7),
        }

    def reset_state(self):
        self.matrix.assign(ops.zeros((2, 2), "int32"))


x = np.random.normal(size=(72, 6)).astype("float32")
y = (x[:, :1] + 0.3 * x[:, 1:2] > 0).astype("float32")
model = keras.Sequential([keras.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(1, activation="sigmoid")])
model.compile(
    keras.optimizers.Adam(0.02, epsilon=1e-3),
    "binary_crossentropy",
    metrics=[
        Correlation(),
        Confusion(),
        keras.metrics.F1Score(threshold=0.5),
        keras.metrics.FBetaScore(threshold=0.4, beta=2.0, name="f2"),
        keras.metrics.AUC(curve="PR", num_thresholds=20),
        keras.metrics.BinaryIoU(),
        keras.metrics.PrecisionAtRecall(0.7, num_thresholds=20),
        keras.metrics.MeanMetricWrapper(fn=lambda y, p: ops.abs(y - p), name="away"),
    ],
)
ring.distribute(model)
history = model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, validation_split=0.25, class_weight={0: 1, 1: 3})
results = [float(v) for v in model.evaluate(x, y, batch_size=batch, verbose=0)[:2]]
