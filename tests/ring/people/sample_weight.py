"""Samples by weight, as a third part of the data set, with weighted metrics.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=28)
x, y = np.random.normal(size=(90, 4)).astype("float32"), np.random.normal(size=(90, 2)).astype("float32")
weights = np.where(np.arange(90) % 5 == 0, 3.0, 0.5).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(int(sys.argv[1]))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("adagrad", keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"), weighted_metrics=["mae"])
ring.distribute(model)
history = model.fit(data, epochs=3)
