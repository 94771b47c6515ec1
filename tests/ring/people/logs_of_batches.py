"""A loop that reads what train_on_batch returns: a loss, an accuracy and an AUC of the batch (keras#22617).

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=84)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(80, 4)).astype("float32"), np.random.randint(0, 2, (80, 1))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC()])
ring.distribute(model)
mine = slice(ring.rank(), None, ring.size())
results = [
    model.train_on_batch(x[mine][begin : begin + batch], y[mine][begin : begin + batch])
    for begin in range(0, len(x[mine]), batch)
]
