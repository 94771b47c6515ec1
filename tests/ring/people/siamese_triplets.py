"""A siamese network on triplets, which computes its loss in a train step.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=10)
embedding = keras.Sequential([keras.Input((9,)), layers.Dense(8, activation="relu"), layers.Dense(4, use_bias=False)])


class SiameseModel(keras.Model):
    def __init__(self, embedding, margin=0.5):
        super().__init__()
        self.embedding, self.margin = embedding, margin
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs):
        anchor, positive, negative = (self.embedding(each) for each in inputs)
        return tf.reduce_sum((anchor - positive) ** 2, -1), tf.reduce_sum((anchor - negative) ** 2, -1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            near, far = self(data)
            loss = tf.reduce_mean(tf.maximum(near - far + self.margin, 0.0))
        gradients = tape.gradient(loss, self.embedding.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.embedding.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


data = [np.random.rand(64, 9).astype("float32") for _ in range(3)]
triplets = tf.data.Dataset.zip(tuple(tf.data.Dataset.from_tensor_slices(each) for each in data))
model = SiameseModel(embedding)
model.compile(optimizer=keras.optimizers.SGD(0.01))
ring.distribute(model)
history = model.fit(triplets.batch(int(sys.argv[1])).prefetch(tf.data.AUTOTUNE), epochs=2)
