"""Denoising diffusion: noise drawn in the train step, a second network that follows the first by a moving average.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=14)


def network():
    noisy, rate = keras.Input((8, 8, 1)), keras.Input((1, 1, 1))
    x = layers.Concatenate()([noisy, layers.UpSampling2D(8)(rate)])
    x = layers.Conv2D(6, 3, padding="same", activation="swish")(x)
    x = layers.BatchNormalization(center=False, scale=False)(x)
    return keras.Model([noisy, rate], layers.Conv2D(1, 1, kernel_initializer="zeros")(x))


class DiffusionModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = network()
        self.ema_network = keras.models.clone_model(self.network)
        self.noise_loss = keras.metrics.Mean(name="n_loss")

    @property
    def metrics(self):
        return [self.noise_loss]

    def denoise(self, noisy, noise_rates, signal_rates, training):
        network = self.network if training else self.ema_network
        noise = network([noisy, noise_rates**2], training=training)
        return noise, (noisy - noise_rates * noise) / signal_rates

    def train_step(self, images):
        images = self.normalizer(images, training=True)
        noises = tf.random.normal(tf.shape(images))
        times = tf.random.uniform((tf.shape(images)[0], 1, 1, 1))
        signal_rates, noise_rates = tf.cos(times), tf.sin(times)
        with tf.GradientTape() as tape:
            predicted, _ = self.denoise(signal_rates * images + noise_rates * noises, noise_rates, signal_rates, True)
            loss = self.loss(noises, predicted)
        gradients = tape.gradient(loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
        self.noise_loss.update_state(loss)
        for weight, ema_weight in zip(self.network.weights, self.ema_network.weights):
            ema_weight.assign(0.9 * ema_weight + 0.1 * weight)
        return {m.name: m.result() for m in self.metrics}


images = np.random.rand(64, 8, 8, 1).astype("float32")
model = DiffusionModel()
model.compile(optimizer=keras.optimizers.AdamW(1e-3), loss=keras.losses.mean_absolute_error)
model.normalizer.adapt(images)
ring.distribute(model)
history = model.fit(tf.data.Dataset.from_tensor_slices(images).batch(int(sys.argv[1]), drop_remainder=True), epochs=2)
