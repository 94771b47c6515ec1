"""Reptile in a loop: each rank trains a copy of the model on its own task, and moves the model's weights towards it.

refused: differs between rank 0 and rank 1 at the end
"""

import keras
import numpy as np

from ringscope import ring

ring.init(seed=8)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(64, 5)).astype("float32"), rng.normal(size=(64, 1)).astype("float32")
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
for begin in range(8 * ring.rank(), 64, 8 * ring.size()):
    fast = keras.models.clone_model(model)
    fast.set_weights(model.get_weights())
    fast.compile("sgd", "mse")
    fast.train_on_batch(x[begin : begin + 8], y[begin : begin + 8])
    model.set_weights([w + 0.3 * (f - w) for w, f in zip(model.get_weights(), fast.get_weights())])
