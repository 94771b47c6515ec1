"""Means by hand in other words: boolean_mask, Tversky's index of a batch, a detector's positives, a mask of Keras's.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring

ring.init(seed=5)
BATCH = int(sys.argv[1])
rng = np.random.default_rng(1)
more = np.linspace(0.02, 0.9, 64)  # samples are not alike, so that the ranks' denominators differ
pictures = rng.normal(size=(64, 6, 6, 3)).astype("float32")
classes = np.where(rng.random((64, 6, 6)) < more[:, None, None], 255, rng.integers(0, 3, (64, 6, 6)))
shapes = (rng.random((64, 6, 6, 2)) < more[:, None, None, None]).astype("float32")
rows = rng.normal(size=(64, 5)).astype("float32")
found = (rng.random((64, 10)) < more[:, None]).astype("float32")
words = np.where(np.arange(7) > np.linspace(0, 7, 64)[:, None], 0, rng.integers(1, 20, (64, 7)))


def without_void(y, p):
    y = tf.cast(y, tf.int32)
    valid = tf.not_equal(y, 255)
    each = keras.losses.sparse_categorical_crossentropy(
        tf.boolean_mask(y, valid), tf.boolean_mask(p, valid), from_logits=True
    )
    return tf.reduce_mean(each)


class Tversky(keras.losses.Loss):
    def call(self, y, p):
        p = ops.sigmoid(p)
        hits, extra, missed = (ops.sum(one, axis=(0, 1, 2)) for one in (y * p, (1 - y) * p, y * (1 - p)))
        return 1 - ops.mean((hits + 1e-6) / (hits + 0.3 * extra + 0.7 * missed + 1e-6))


class Detector(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            focal = tf.nn.sigmoid_cross_entropy_with_logits(y, p) * tf.square(y - tf.sigmoid(p))
            positives = tf.maximum(tf.reduce_sum(y), 1.0)
            loss = tf.reduce_sum(focal) / positives + 0.1 * tf.reduce_sum(tf.abs(p) * y) / positives
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Entropy(layers.Layer):
    supports_masking = True

    def call(self, h, mask=None):
        mask, p = ops.cast(mask, "float32"), ops.softmax(h)
        self.add_loss(0.3 * ops.sum(-ops.sum(p * ops.log(p + 1e-9), -1) * mask) / ops.sum(mask))
        return h


detector = keras.Input((5,))
of_words = [keras.Input((7,), dtype="int32"), layers.Embedding(20, 4, mask_zero=True), Entropy()]
models = []
for model, loss, x, y in (
    (keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(3, 1)]), without_void, pictures, classes),
    (keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(2, 1)]), Tversky(), pictures, shapes),
    (Detector(detector, layers.Dense(10)(detector)), None, rows, found),
    (keras.Sequential([*of_words, layers.GlobalAveragePooling1D(), layers.Dense(1)]), "mse", words, rows[:, :1]),
):
    model.compile(keras.optimizers.SGD(0.1), loss)
    ring.distribute(model)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    models.append(model)
