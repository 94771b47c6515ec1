"""WGAN-GP: three steps of the critic for one of the generator, gradients of gradients.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=6)


class WGAN(keras.Model):
    def __init__(self, critic, generator, critic_steps=3, weight=10.0):
        super().__init__()
        self.critic, self.generator, self.critic_steps, self.weight = critic, generator, critic_steps, weight

    def compile(self, c_optimizer, g_optimizer):
        super().compile()
        self.c_optimizer, self.g_optimizer = c_optimizer, g_optimizer

    def gradient_penalty(self, real, fake):
        alpha = tf.random.uniform((tf.shape(real)[0], 1))
        between = real + alpha * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            score = self.critic(between, training=True)
        norm = tf.sqrt(tf.reduce_sum(tf.square(tape.gradient(score, between)), axis=1) + 1e-12)
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, real):
        if isinstance(real, tuple):
            real = real[0]
        batch = tf.shape(real)[0]
        for _ in range(self.critic_steps):
            with tf.GradientTape() as tape:
                fake = self.generator(tf.random.normal((batch, 4)), training=True)
                cost = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(self.critic(real))
                c_loss = cost + self.weight * self.gradient_penalty(real, fake)
            gradients = tape.gradient(c_loss, self.critic.trainable_variables)
            self.c_optimizer.apply_gradients(zip(gradients, self.critic.trainable_variables))
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.critic(self.generator(tf.random.normal((batch, 4)), training=True)))
        gradients = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_variables))
        return {"c_loss": c_loss, "g_loss": g_loss}


critic = keras.Sequential([keras.Input((6,)), layers.Dense(16), layers.LeakyReLU(), layers.Dense(1)])
generator = keras.Sequential([keras.Input((4,)), layers.Dense(16, activation="relu"), layers.Dense(6)])
wgan = WGAN(critic, generator)
wgan.compile(keras.optimizers.Adam(1e-3, beta_1=0.5), keras.optimizers.Adam(1e-3, beta_1=0.5))
ring.distribute(wgan)
history = wgan.fit(np.random.rand(64, 6).astype("float32"), batch_size=int(sys.argv[1]), epochs=2)
