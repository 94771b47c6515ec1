"""Distributed before it is compiled.

refused: call model.compile(...) first
"""

import keras

from ringscope import ring

ring.init(seed=66)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
ring.distribute(model)
model.compile("sgd", "mse")
