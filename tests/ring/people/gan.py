"""A GAN as one model of two, with an optimizer for each.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=5)
LATENT = 8


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.d_loss, self.g_loss = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def train_step(self, real):
        batch = tf.shape(real)[0]
        fake = self.generator(tf.random.normal((batch, LATENT)))
        images = tf.concat([fake, real], axis=0)
        labels = tf.concat([tf.ones((batch, 1)), tf.zeros((batch, 1))], axis=0)
        labels += 0.05 * tf.random.uniform(tf.shape(labels))
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(images))
        gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_weights))
        with tf.GradientTape() as tape:
            score = self.discriminator(self.generator(tf.random.normal((batch, LATENT))))
            g_loss = self.loss_fn(tf.zeros((batch, 1)), score)
        gradients = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_weights))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


discriminator = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(8, 4, strides=2, padding="same"),
        layers.LeakyReLU(0.2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    ]
)
generator = keras.Sequential(
    [
        keras.Input((LATENT,)),
        layers.Dense(4 * 4 * 8),
        layers.Reshape((4, 4, 8)),
        layers.Conv2DTranspose(8, 4, strides=2, padding="same", activation="relu"),
        layers.Conv2D(1, 5, padding="same", activation="sigmoid"),
    ]
)
gan = GAN(discriminator, generator)
gan.compile(keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4), keras.losses.BinaryCrossentropy())
ring.distribute(gan)
data = tf.data.Dataset.from_tensor_slices(np.random.rand(64, 8, 8, 1).astype("float32")).shuffle(64)
history = gan.fit(data.batch(int(sys.argv[1])), epochs=2)
