"""A masked autoencoder: no `call`, layers that its train and test steps build, and patches that the step draws.

joined: no, each rank draws masks of its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=3)
PATCHES, WIDTH = 16, 12


class PatchEncoder(layers.Layer):
    def __init__(self):
        super().__init__()
        self.projection = layers.Dense(WIDTH)
        self.positions = layers.Embedding(PATCHES, WIDTH)

    def build(self, shape):
        self.projection.build(shape)
        self.positions.build((PATCHES,))
        self.built = True

    def call(self, patches):
        batch = tf.shape(patches)[0]
        places = tf.tile(self.positions(tf.range(PATCHES)[tf.newaxis]), [batch, 1, 1])
        order = tf.argsort(tf.random.uniform((batch, PATCHES)), axis=-1)
        masked, seen = order[:, :12], order[:, 12:]
        embedded = self.projection(patches) + places
        return tf.gather(embedded, seen, axis=1, batch_dims=1), tf.gather(places, masked, axis=1, batch_dims=1), masked


class MaskedAutoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = PatchEncoder()
        self.attention = layers.MultiHeadAttention(2, 6)
        self.decoder = layers.Dense(4)

    def calculate_loss(self, images):
        patches = tf.image.extract_patches(images, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
        patches = tf.reshape(patches, (tf.shape(images)[0], PATCHES, 4))
        seen, hidden, masked = self.encoder(patches)
        x = tf.concat([seen, hidden], axis=1)
        decoded = self.decoder(x + self.attention(x, x))[:, 4:]
        wanted = tf.gather(patches, masked, axis=1, batch_dims=1)
        return self.compute_loss(y=wanted, y_pred=decoded), wanted, decoded

    def told(self, loss, wanted, decoded):
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(wanted, decoded)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, images):
        with tf.GradientTape() as tape:
            loss, wanted, decoded = self.calculate_loss(images)
        variables = self.encoder.trainable_variables + self.attention.trainable_variables
        variables += self.decoder.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return self.told(loss, wanted, decoded)

    def test_step(self, images):
        return self.told(*self.calculate_loss(images))


images = np.random.rand(64, 8, 8, 1).astype("float32")
model = MaskedAutoencoder()
model.compile(optimizer=keras.optimizers.AdamW(1e-3), loss="mse", metrics=["mae"])
ring.distribute(model)
data = tf.data.Dataset.from_tensor_slices(images).shuffle(64).batch(int(sys.argv[1]), drop_remainder=True)
history = model.fit(data, epochs=2, validation_data=data)
