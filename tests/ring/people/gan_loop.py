"""A GAN in a loop of its own, as TensorFlow's tutorial has it: two models, two tapes, one tf.function.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=7)
batch = int(sys.argv[1])
cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
generator = keras.Sequential([keras.Input((5,)), layers.Dense(12), layers.BatchNormalization(), layers.Dense(7)])
discriminator = keras.Sequential([keras.Input((7,)), layers.Dense(12, activation="relu"), layers.Dense(1)])
generator_optimizer, discriminator_optimizer = keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3)
generator.compile(generator_optimizer)
discriminator.compile(discriminator_optimizer)
ring.distribute(generator)
ring.distribute(discriminator)


@tf.function
def train_step(images):
    noise = tf.random.normal([tf.shape(images)[0], 5])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        fake = generator(noise, training=True)
        real_output, fake_output = discriminator(images, training=True), discriminator(fake, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
        disc_loss = cross_entropy(tf.ones_like(real_output), real_output)
        disc_loss += cross_entropy(tf.zeros_like(fake_output), fake_output)
    gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gradients, generator.trainable_variables))
    gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    discriminator_optimizer.apply_gradients(zip(gradients, discriminator.trainable_variables))


images = tf.random.uniform((64, 7), seed=1)
dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(64, seed=2).batch(batch).shard(ring.size(), ring.rank())
for _ in range(2):
    for image_batch in dataset:
        train_step(image_batch)
ring.average_statistics(generator)
