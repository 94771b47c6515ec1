"""A loop with an optimizer that ring has never seen: the ranks part, which shows when the script ends.

refused: something other than the distributed optimizer updates it
"""

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=61)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
optimizer = keras.optimizers.SGD(0.1)
x = np.random.normal(size=(64, 4)).astype("float32")[ring.rank() :: ring.size()]
for begin in range(0, 32, 8):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x[begin : begin + 8]) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
