"""Gradients of three batches added up, clipped, decayed by a schedule, with a rest at the end (keras#19990).

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=80)
x, y = np.random.normal(size=(160, 4)).astype("float32"), np.random.normal(size=(160, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)])
rate = keras.optimizers.schedules.CosineDecay(0.05, 8)
optimizer = keras.optimizers.AdamW(rate, weight_decay=0.1, global_clipnorm=0.1, gradient_accumulation_steps=3)
model.compile(optimizer, "mse")
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
results = [int(optimizer.iterations)]
