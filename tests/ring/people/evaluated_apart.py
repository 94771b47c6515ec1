"""A loop with an optimizer that the model has not, and an evaluation by all ranks after it.

refused: when all ranks evaluate it
"""

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=87)
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse")
ring.distribute(model)
optimizer = keras.optimizers.Adam(0.1)
for begin in range(ring.rank(), 64, 8 * ring.size()):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x[begin : begin + 8]) - y[begin : begin + 8]) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
model.evaluate(x, y)
