"""Several captions of each image, an update for each, by a model that has no `call` and begins with no weights.

joined: no, each rank's words are counted apart
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=7)
CAPTIONS, LENGTH, WORDS = 3, 6, 20


class Captioning(keras.Model):
    def __init__(self):
        super().__init__()
        self.cnn = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(8, 3), layers.Reshape((36, 8))])
        self.cnn.trainable = False
        self.encoder, self.out = layers.Dense(8, activation="relu"), layers.Dense(WORDS, activation="softmax")
        self.embedding = layers.Embedding(WORDS, 8)
        self.attention = layers.MultiHeadAttention(2, 4, dropout=0.1)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def decoded_loss(self, embedded, caption, training):
        words, wanted = caption[:, :-1], caption[:, 1:]
        mask = tf.math.not_equal(wanted, 0)
        x = self.embedding(words)
        x += self.attention(x, self.encoder(embedded), attention_mask=mask[:, :, tf.newaxis], training=training)
        loss = self.loss(wanted, self.out(x))
        mask = tf.cast(mask, loss.dtype)
        return tf.reduce_sum(loss * mask) / tf.reduce_sum(mask)

    def train_step(self, data):
        images, captions = data
        embedded = self.cnn(images)
        total = 0.0
        for i in range(CAPTIONS):
            with tf.GradientTape() as tape:
                loss = self.decoded_loss(embedded, captions[:, i, :], training=True)
                total += loss
            parts = self.encoder, self.out, self.embedding, self.attention
            variables = [variable for part in parts for variable in part.trainable_variables]
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.loss_tracker.update_state(total)
        return {"loss": self.loss_tracker.result()}


images = np.random.rand(64, 8, 8, 3).astype("float32")
captions = np.random.randint(1, WORDS, (64, CAPTIONS, LENGTH)).astype("int32")
captions[:, :, 4:] *= np.random.randint(0, 2, (64, CAPTIONS, 1)).astype("int32")
model = Captioning()
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=keras.losses.SparseCategoricalCrossentropy(reduction=None))
ring.distribute(model)
history = model.fit(
    tf.data.Dataset.from_tensor_slices((images, captions)).shuffle(64).batch(int(sys.argv[1])), epochs=2
)
