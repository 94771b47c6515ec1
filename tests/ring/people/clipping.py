"""A recurrent network whose gradients are clipped: by norm, all together, by value.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=36)
series = np.random.normal(size=(64, 8, 2)).astype("float32")
target = series.sum(axis=(1, 2))[:, None] * 5
models = []
for clip in ({"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.01}):
    model = keras.Sequential([keras.Input((8, 2)), keras.layers.SimpleRNN(6), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01, **clip), "mse")
    ring.distribute(model)
    model.fit(series, target, batch_size=int(sys.argv[1]), epochs=1, shuffle=False, verbose=0)
    models.append(model)
