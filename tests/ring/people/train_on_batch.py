"""A loop over train_on_batch, each rank on its own rows, tested by test_on_batch.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=43)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.randint(0, 2, (96, 1))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
ring.distribute(model)
mine = slice(ring.rank(), None, ring.size())
for epoch in range(2):
    for begin in range(0, len(x[mine]), batch):
        loss, accuracy = model.train_on_batch(x[mine][begin : begin + batch], y[mine][begin : begin + batch])
    print(epoch, loss, accuracy, model.test_on_batch(x[:16], y[:16]))
