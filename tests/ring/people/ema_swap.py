"""Weights averaged over steps, swapped in for validation and at the end; SWA by a callback beside it.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=3)


class SWA(keras.callbacks.Callback):
    def __init__(self, start):
        super().__init__()
        self.start, self.mean = start, None

    def on_epoch_end(self, epoch, logs=None):
        if epoch >= self.start:
            count, now = epoch - self.start, self.model.get_weights()
            self.mean = now if self.mean is None else [(m * count + n) / (count + 1) for m, n in zip(self.mean, now)]

    def on_train_end(self, logs=None):
        self.model.set_weights(self.mean)


x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.9), "mse")
ring.distribute(model)
history = model.fit(
    x,
    y,
    int(sys.argv[1]),
    3,
    shuffle=False,
    validation_data=(x[:20], y[:20]),
    callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
)
other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
other.compile(keras.optimizers.Adam(0.02), "mse")
ring.distribute(other)
other.fit(x, y, int(sys.argv[1]), 4, shuffle=False, callbacks=[SWA(1)])
results = other.evaluate(x, y, verbose=0)
