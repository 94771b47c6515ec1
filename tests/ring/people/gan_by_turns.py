"""A GAN whose generator is trained in every second step, by tf.cond, in mixed float16 with scaled losses.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=12)
keras.mixed_precision.set_global_policy("mixed_float16")
LATENT = 4


class ByTurns(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.turn = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="turn")

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

    def train_d(self, real):
        fake = self.generator(keras.random.normal((tf.shape(real)[0], LATENT)), training=True)
        with tf.GradientTape() as tape:
            scores = self.discriminator(tf.concat([real, tf.cast(fake, real.dtype)], axis=0), training=True)
            labels = tf.concat([tf.ones((tf.shape(real)[0], 1)), tf.zeros((tf.shape(real)[0], 1))], axis=0)
            loss = self.loss_fn(labels, scores)
            scaled = self.d_optimizer.scale_loss(loss)
        variables = self.discriminator.trainable_variables
        self.d_optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables))
        return loss

    def train_g(self, batch):
        with tf.GradientTape() as tape:
            fake = self.generator(keras.random.normal((batch, LATENT)), training=True)
            loss = self.loss_fn(tf.ones((batch, 1)), self.discriminator(fake, training=True))
            scaled = self.g_optimizer.scale_loss(loss)
        variables = self.generator.trainable_variables
        self.g_optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables))
        return loss

    def train_step(self, real):
        d_loss = self.train_d(real)
        g_loss = tf.cond(self.turn % 2 == 0, lambda: self.train_g(tf.shape(real)[0]), lambda: tf.constant(0.0))
        self.turn.assign(self.turn + 1)
        return {"d_loss": d_loss, "g_loss": g_loss}


discriminator = keras.Sequential(
    [keras.Input((6,)), layers.Dense(8), layers.LeakyReLU(0.2), layers.Dense(1, dtype="float32")]
)
generator = keras.Sequential([keras.Input((LATENT,)), layers.Dense(8, activation="relu"), layers.Dense(6)])
gan = ByTurns(discriminator, generator)
gan.compile(
    *(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=256.0) for _ in range(2))
)
ring.distribute(gan)
data = tf.data.Dataset.from_tensor_slices(np.random.rand(64, 6).astype("float32")).shuffle(64)
gan.fit(data.batch(int(sys.argv[1]), drop_remainder=True), epochs=2)
assert int(gan.turn) == 2 * 64 // int(sys.argv[1]) // ring.size()
