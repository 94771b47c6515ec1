"""The learning rate by a schedule within the optimizer, then by a callback in each epoch.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=34)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
cosine = keras.optimizers.schedules.CosineDecay(0.0, 8, warmup_target=0.1, warmup_steps=3)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_regularizer=keras.regularizers.L2(0.01))])
model.compile(keras.optimizers.Adam(cosine), "mse")
ring.distribute(model)
model.fit(x, y, batch_size=batch, epochs=2, shuffle=False)
model.compile(keras.optimizers.Adam(0.1), "mse")
ring.distribute(model)
schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate, verbose=1)
history = model.fit(x, y, batch_size=batch, epochs=3, shuffle=False, callbacks=[schedule])
