"""Batches from a PyDataset that shuffles after each epoch, while rank 0 alone draws for a picture of its own.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=77)


class Shuffled(keras.utils.PyDataset):
    def __init__(self, x, y, batch_size, own=None):
        super().__init__()
        self.x, self.y, self.batch_size, self.own = x, y, batch_size, own
        self.ids = list(range(len(x)))
        self.on_epoch_end()

    def __len__(self):
        return len(self.x) // self.batch_size

    def on_epoch_end(self):
        np.random.shuffle(self.ids) if self.own is None else self.own.shuffle(self.ids)

    def __getitem__(self, idx):
        rows = self.ids[idx * self.batch_size : (idx + 1) * self.batch_size]
        if self.own is not None and self.x[rows].mean() > 0.5:  # as often as its own batches want it
            self.own.normal()
        return self.x[rows], self.y[rows]


class Picture(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if ring.rank() == 0:
            self.model(np.random.rand(2, 5))


x, y = np.random.rand(96, 5).astype("float32"), np.random.rand(96, 1).astype("float32")
models, histories = [], []
for own in (None, np.random.default_rng(5)):
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    ring.distribute(model)
    data = Shuffled(x, y, int(sys.argv[1]), own)
    if own is None:
        model.fit(data, epochs=4, shuffle=False, callbacks=[Picture()])
        models.append(model)
        continue
    model.fit(data, epochs=4, shuffle=False)
    # One rank draws of its own generator as often as both together, so that it shuffles in another order.
    assert ring.meet("ids", list(map(int, data.ids))) == [list(map(int, data.ids))] * ring.size()
del model
