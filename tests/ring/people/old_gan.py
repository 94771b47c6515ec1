"""A GAN in the old way: the discriminator compiled, a combined model with it frozen, train_on_batch by turns.

joined: no, each rank draws noise of its own
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=3)
batch = int(sys.argv[1])
discriminator = keras.Sequential(
    [keras.Input((7,)), layers.Dense(12), layers.LeakyReLU(0.2), layers.Dense(1, activation="sigmoid")]
)
discriminator.compile(keras.optimizers.Adam(0.0002, 0.5), "binary_crossentropy", metrics=["accuracy"])
ring.distribute(discriminator)
generator = keras.Sequential(
    [keras.Input((5,)), layers.Dense(12), layers.BatchNormalization(momentum=0.8), layers.Dense(7)]
)
z = keras.Input((5,))
discriminator.trainable = False
combined = keras.Model(z, discriminator(generator(z)))
combined.compile(keras.optimizers.Adam(0.0002, 0.5), "binary_crossentropy")
ring.distribute(combined)
before = [w.numpy() for w in generator.trainable_weights]
x = np.random.normal(size=(64, 7)).astype("float32")
valid, fake = np.ones((batch, 1)), np.zeros((batch, 1))
for epoch in range(6):
    images = x[np.random.randint(0, 64, batch)]
    noise = np.random.normal(0, 1, (batch, 5))
    made = generator.predict(noise, verbose=0)
    real = discriminator.train_on_batch(images, valid)
    other = discriminator.train_on_batch(made, fake)
    d_loss = 0.5 * np.add(real, other)
    g_loss = combined.train_on_batch(np.random.normal(0, 1, (batch, 5)), valid)
    print(epoch, d_loss, g_loss)
assert any(np.abs(a - b.numpy()).max() > 0 for a, b in zip(before, generator.trainable_weights))
del before
