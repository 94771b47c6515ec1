"""Gradients of two batches added up before an update, by the optimizer's own option; weights by moving average too.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=35)
x, y = np.random.normal(size=(128, 4)).astype("float32"), np.random.normal(size=(128, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=2), loss="mse")
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4), loss="mse")
ring.distribute(model)
swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
averaged = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, callbacks=[swap])
