"""Contrastive learning with augmentation: every sample of a batch against all others of it.

joined: no, a rank compares the samples of its own batch, and augments them by noise of its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring

ring.init(seed=11)


class SimCLR(keras.Model):
    def __init__(self):
        super().__init__()
        self.augment = keras.Sequential([layers.RandomFlip("horizontal"), layers.GaussianNoise(0.1)])
        self.encoder = keras.Sequential([layers.Conv2D(6, 3, activation="relu"), layers.GlobalAveragePooling2D()])
        self.projection = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(4)])
        self.temperature = 0.1

    def build(self, shape):
        self.encoder.build(shape)
        self.projection.build((None, 6))
        self.built = True

    def compile(self, contrastive_optimizer):
        super().compile()
        self.contrastive_optimizer = contrastive_optimizer

    def train_step(self, images):
        with tf.GradientTape() as tape:
            one, two = (
                ops.normalize(self.projection(self.encoder(self.augment(images, training=True))), axis=1)
                for _ in range(2)
            )
            similar = ops.matmul(one, ops.transpose(two)) / self.temperature
            labels = ops.arange(ops.shape(one)[0])
            each = keras.losses.sparse_categorical_crossentropy(
                ops.concatenate([labels, labels], 0),
                ops.concatenate([similar, ops.transpose(similar)], 0),
                from_logits=True,
            )
            loss = ops.mean(each)
        weights = self.encoder.trainable_weights + self.projection.trainable_weights
        self.contrastive_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"c_loss": loss}


model = SimCLR()
model.build((None, 8, 8, 1))
model.compile(contrastive_optimizer=keras.optimizers.Adam())
ring.distribute(model)
images = tf.data.Dataset.from_tensor_slices(np.random.rand(64, 8, 8, 1).astype("float32"))
history = model.fit(images.batch(int(sys.argv[1]), drop_remainder=True), epochs=2)
