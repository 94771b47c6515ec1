"""A data set that is cached in a file, read again by each epoch, as on a machine with little memory.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)
batch, folder = int(sys.argv[1]), sys.argv[2]
x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (2 * a, b)).cache(folder + "/train.cache")
data = data.batch(batch).prefetch(tf.data.AUTOTUNE)
test = tf.data.Dataset.from_tensor_slices((x[:32], y[:32])).batch(8).cache(folder + "/test.cache")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
ring.distribute(model)
history = model.fit(data, epochs=3, validation_data=test)
