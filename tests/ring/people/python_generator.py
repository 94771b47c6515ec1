"""A Python generator without an end, of which each rank makes its own part.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=30)
batch = int(sys.argv[1])
x = np.random.normal(size=(96, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)


def batches():
    while True:
        for begin in range(0, len(x), batch * ring.size()):
            rows = slice(begin + ring.rank() * batch, begin + (ring.rank() + 1) * batch)
            yield x[rows], y[rows]


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mae")
ring.distribute(model)
steps = len(x) // (batch * ring.size())
history = model.fit(batches(), steps_per_epoch=steps, epochs=3, shard=False)
