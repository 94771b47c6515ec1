"""A loop in a function, with an optimizer of its own for a model that is distributed with another.

refused: something other than the distributed optimizer updates it
"""

import gc

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=86)


def train():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile()
    ring.distribute(model)
    optimizer = keras.optimizers.SGD(0.1)
    x = np.random.normal(size=(64, 4)).astype("float32")[ring.rank() :: ring.size()]
    for begin in range(0, 32, 8):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x[begin : begin + 8]) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


train()
gc.collect()
