"""Data prepared by spawned processes, which run the lines above `if __name__ == "__main__"` again.

joined: 1e-5, sums in another order
"""

import multiprocessing
import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=61)
batch, own = int(sys.argv[1]), slice(ring.rank(), None, ring.size())


def prepared(number):
    random = np.random.default_rng(number)
    return random.normal(size=(12, 4)).astype("float32")


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        x = np.concatenate(pool.map(prepared, range(8)))
    y = x[:, :1] * x[:, 1:2]
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    ring.distribute(model)
    history = model.fit(x[own], y[own], batch_size=batch, epochs=2, shuffle=False, shard=False)
