"""A CycleGAN: two generators, two discriminators, an optimizer for each, one tape for all.

joined: 1e-4, means over samples
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=4)


def generator(name):
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, padding="same")(x)
    x = layers.GroupNormalization(groups=-1)(x)
    x = layers.Activation("relu")(x)
    y = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x)
    y = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(y)
    x = layers.add([x, layers.GroupNormalization(groups=-1)(y)])
    return keras.Model(inputs, layers.Conv2D(3, 3, padding="same", activation="tanh")(x), name=name)


def discriminator(name):
    x = inputs = keras.Input((8, 8, 3))
    x = layers.LeakyReLU(0.2)(layers.Conv2D(8, 4, strides=2, padding="same")(x))
    return keras.Model(inputs, layers.Conv2D(1, 4, padding="same")(x), name=name)


def adversarial(fake):
    return tf.reduce_mean(tf.square(tf.ones_like(fake) - fake))


def discriminating(real, fake):
    return 0.5 * (tf.reduce_mean(tf.square(tf.ones_like(real) - real)) + tf.reduce_mean(tf.square(fake)))


class CycleGan(keras.Model):
    def __init__(self, gen_g, gen_f, disc_x, disc_y):
        super().__init__()
        self.gen_g, self.gen_f, self.disc_x, self.disc_y = gen_g, gen_f, disc_x, disc_y

    def call(self, inputs):
        return self.gen_g(inputs)

    def compile(self, *optimizers):
        super().compile()
        self.opt_g, self.opt_f, self.opt_x, self.opt_y = optimizers
        self.cycle = self.identity = keras.losses.MeanAbsoluteError()

    def train_step(self, data):
        real_x, real_y = data
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = self.gen_g(real_x, training=True), self.gen_f(real_y, training=True)
            cycled_x, cycled_y = self.gen_f(fake_y, training=True), self.gen_g(fake_x, training=True)
            same_x, same_y = self.gen_f(real_x, training=True), self.gen_g(real_y, training=True)
            disc_real_x, disc_fake_x = self.disc_x(real_x, training=True), self.disc_x(fake_x, training=True)
            disc_real_y, disc_fake_y = self.disc_y(real_y, training=True), self.disc_y(fake_y, training=True)
            g_loss = adversarial(disc_fake_y) + 10 * self.cycle(real_y, cycled_y) + 5 * self.identity(real_y, same_y)
            f_loss = adversarial(disc_fake_x) + 10 * self.cycle(real_x, cycled_x) + 5 * self.identity(real_x, same_x)
            x_loss, y_loss = discriminating(disc_real_x, disc_fake_x), discriminating(disc_real_y, disc_fake_y)
        for loss, part, optimizer in (
            (g_loss, self.gen_g, self.opt_g),
            (f_loss, self.gen_f, self.opt_f),
            (x_loss, self.disc_x, self.opt_x),
            (y_loss, self.disc_y, self.opt_y),
        ):
            gradients = tape.gradient(loss, part.trainable_variables)
            optimizer.apply_gradients(zip(gradients, part.trainable_variables))
        return {"G": g_loss, "F": f_loss, "X": x_loss, "Y": y_loss}


model = CycleGan(generator("g"), generator("f"), discriminator("x"), discriminator("y"))
model.compile(*(keras.optimizers.Adam(2e-4, beta_1=0.5, epsilon=1e-3) for _ in range(4)))
ring.distribute(model)
pictures = np.random.default_rng(0).uniform(-1, 1, (2, 64, 8, 8, 3)).astype("float32")
data = tf.data.Dataset.zip(tuple(map(tf.data.Dataset.from_tensor_slices, pictures))).batch(int(sys.argv[1]))
model.fit(data, epochs=2)
