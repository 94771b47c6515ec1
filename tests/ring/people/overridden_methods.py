"""A model that writes fit, compute_loss and compute_metrics anew and calls what they were.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=81)


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.layers.Dense(1)
        self.mine = keras.metrics.Mean(name="mine")

    def call(self, x):
        return self.d(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = keras.ops.mean(keras.ops.abs(y - y_pred)) + 0.01 * keras.ops.mean(keras.ops.square(y_pred))
        self.mine.update_state(keras.ops.mean(keras.ops.abs(y - y_pred), axis=-1))
        return loss

    def compute_metrics(self, x, y, y_pred, sample_weight):
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        found["mine"] = self.mine.result()
        return found

    def fit(self, *args, **kwargs):
        kwargs.setdefault("verbose", 0)
        return super().fit(*args, **kwargs)


x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
model = Own()
model(x[:2])
model.compile("adam", metrics=["mse"])
ring.distribute(model)
history = model.fit(x, y, int(sys.argv[1]), epochs=2, shuffle=False, validation_data=(x[:40], y[:40]))
