"""A VQ-VAE: the nearest code of each vector, gradients straight through it, losses of the codes added by the layer.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=90)


class VectorQuantizer(layers.Layer):
    def __init__(self, codes, size, beta=0.25):
        super().__init__()
        self.codes, self.size, self.beta = codes, size, beta
        self.embeddings = self.add_weight(shape=(size, codes), initializer="random_uniform", name="embeddings")

    def call(self, x):
        flat = tf.reshape(x, [-1, self.size])
        similarity = tf.matmul(flat, self.embeddings)
        distances = tf.reduce_sum(flat**2, 1, keepdims=True) + tf.reduce_sum(self.embeddings**2, 0) - 2 * similarity
        nearest = tf.one_hot(tf.argmin(distances, axis=1), self.codes)
        quantized = tf.reshape(tf.matmul(nearest, self.embeddings, transpose_b=True), tf.shape(x))
        self.add_loss(self.beta * tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2))
        self.add_loss(tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2))
        return x + tf.stop_gradient(quantized - x)


class VqVae(keras.Model):
    def __init__(self, vae, variance):
        super().__init__()
        self.vae, self.variance = vae, variance
        self.total, self.reconstruction, self.vq = (
            keras.metrics.Mean(name=n) for n in ("loss", "reconstruction", "vq")
        )

    @property
    def metrics(self):
        return [self.total, self.reconstruction, self.vq]

    def train_step(self, x):
        with tf.GradientTape() as tape:
            reconstruction = tf.reduce_mean((x - self.vae(x)) ** 2) / self.variance
            total = reconstruction + sum(self.vae.losses)
        grads = tape.gradient(total, self.vae.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.vae.trainable_variables))
        self.total.update_state(total)
        self.reconstruction.update_state(reconstruction)
        self.vq.update_state(sum(self.vae.losses))
        return {m.name: m.result() for m in self.metrics}


x = np.random.rand(64, 8, 8, 1).astype("float32") * np.linspace(0.2, 1, 64)[:, None, None, None].astype("float32")
inputs = keras.Input((8, 8, 1))
h = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(inputs)
h = VectorQuantizer(8, 4)(layers.Conv2D(4, 1)(h))
outputs = layers.Conv2DTranspose(1, 3, strides=2, padding="same")(h)
model = VqVae(keras.Model(inputs, outputs), float(np.var(x)))
model.compile(keras.optimizers.SGD(0.05))
ring.distribute(model)
history = model.fit(x, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
