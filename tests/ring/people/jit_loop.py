"""A loop whose step is compiled by XLA as a whole, as on a TPU.

refused: jit_compile
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam()
model.compile(optimizer)
ring.distribute(model)


@tf.function(jit_compile=True)
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


for i in range(4):
    step(x[i * batch : (i + 1) * batch], y[i * batch : (i + 1) * batch])
