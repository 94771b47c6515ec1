"""A VAE as a functional model: a sampling layer that draws by tf.random, a loss added for the divergence.

joined: no, each rank draws its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=9)


class Sampling(layers.Layer):
    def call(self, inputs):
        mean, log_variance = inputs
        batch, width = tf.shape(mean)[0], tf.shape(mean)[1]
        self.add_loss(-0.5 * tf.reduce_mean(1 + log_variance - mean**2 - tf.exp(log_variance)))
        return mean + tf.exp(0.5 * log_variance) * tf.random.normal(shape=(batch, width), seed=11)


class Noise(layers.Layer):
    """Of one seed each, as in scripts that want them paired."""

    def call(self, inputs, training=False):
        if not training:
            return inputs
        return tf.nn.dropout(inputs + tf.random.normal(tf.shape(inputs), stddev=0.1, seed=3), 0.2, seed=3)


inputs = keras.Input((12,))
x = layers.Dense(16, activation="relu")(Noise()(inputs))
z = Sampling()([layers.Dense(3)(x), layers.Dense(3)(x)])
outputs = layers.Dense(12, activation="sigmoid")(layers.Dense(16, activation="relu")(z))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy")
ring.distribute(model)
x = np.random.default_rng(0).uniform(size=(96, 12)).astype("float32")
history = model.fit(x, x, batch_size=int(sys.argv[1]), epochs=3, validation_split=0.2)
