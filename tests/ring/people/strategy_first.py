"""A script for MirroredStrategy, mixed precision and XLA, the two lines within its scope (keras#21366, #20763).

refused: make ring.init() the script's first line
"""

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
keras.mixed_precision.set_global_policy("mixed_float16")
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse", jit_compile=True)
    ring.init(seed=73)
    ring.distribute(model)
model.fit(np.zeros((64, 4)), np.zeros((64, 1)), batch_size=8)
