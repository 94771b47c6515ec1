"""Compiled again without telling ring.

refused: call ring.distribute(model) again
"""

import keras
import numpy as np

from ringscope import ring

ring.init(seed=64)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
x, y = np.random.rand(32, 4), np.random.rand(32, 1)
model.fit(x, y, batch_size=8)
model.compile("adam", "mse")
model.fit(x, y, batch_size=8)
