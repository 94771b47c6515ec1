"""A search for the best width in which every rank draws what it tries next from a generator of its own.

refused: is [6, 8] float32 on rank 1; make the same model on all ranks
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=5)
x, y = np.random.normal(size=(64, 6)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
generator = np.random.default_rng(ring.rank() + 1)
for _ in range(3):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(int(generator.integers(4, 9)))])
    model.add(keras.layers.Dense(1))
    model.compile("adam", "mse")
    ring.distribute(model)
    model.fit(x, y, batch_size=int(sys.argv[1]))
