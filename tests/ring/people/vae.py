"""A variational autoencoder: sampling in a layer, the KL term by add_loss.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=12)


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        self.add_loss(-0.5 * ops.mean(1 + log_var - ops.square(mean) - ops.exp(log_var)))
        return mean + ops.exp(0.5 * log_var) * keras.random.normal(ops.shape(mean), seed=self.seed_generator)


inputs = keras.Input((16,))
hidden = layers.Dense(12, activation="relu")(inputs)
z = Sampling()([layers.Dense(2)(hidden), layers.Dense(2)(hidden)])
outputs = layers.Dense(16, activation="sigmoid")(layers.Dense(12, activation="relu")(z))
vae = keras.Model(inputs, outputs)
vae.compile(keras.optimizers.Adam(1e-2), keras.losses.BinaryCrossentropy())
ring.distribute(vae)
x = np.random.rand(96, 16).astype("float32")
history = vae.fit(x, x, epochs=2, batch_size=int(sys.argv[1]))
