"""Gradients of two steps exchanged at once, before and after a layer is frozen, with one optimizer.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=14)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(112, 4)).astype("float32"), np.random.normal(size=(112, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
ring.distribute(model, aggregate=2)
model.fit(x, y, batch_size=batch, shuffle=False)  # 7 steps: the gradients of the last one wait
model.layers[0].trainable = False
model.compile(model.optimizer, "mse")
history = model.fit(x, y, batch_size=batch, epochs=2, shuffle=False)
