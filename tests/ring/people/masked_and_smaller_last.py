"""Means that people mask by hand, of batches of which the last is smaller: losses as classes, weights, a step by hand.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from ringscope import ring

ring.init(seed=4)
BATCH = int(sys.argv[1])
rng = np.random.default_rng(0)
ROWS = 92  # rank 0's last batch is of 8, and rank 1's of 4
x = rng.normal(size=(ROWS, 5)).astype("float32")
boxes = rng.normal(size=(ROWS, 6, 2)).astype("float32")
classes = rng.integers(-2, 3, (ROWS, 6, 1)).astype("float32")  # -1: background, -2: ignored
y = np.concatenate([boxes, classes], axis=-1)
y[::5, :, 2] = -1  # nothing there


class Detection(keras.losses.Loss):
    """As of a RetinaNet, but that all of the batch's positives are counted."""

    def __init__(self):
        super().__init__(name="detection")
        self.of_boxes = keras.losses.Huber(reduction="none")

    def call(self, y_true, y_pred):
        positive = ops.cast(y_true[..., 2] > -1, "float32")
        counted = ops.cast(ops.not_equal(y_true[..., 2], -2), "float32")
        labels = tf.one_hot(tf.cast(y_true[..., 2], tf.int32), 3)
        focal = keras.losses.binary_focal_crossentropy(labels, y_pred[..., 2:], from_logits=True)
        total = ops.sum(focal * counted) + ops.sum(self.of_boxes(y_true[..., :2], y_pred[..., :2]) * positive)
        return total / ops.maximum(ops.sum(positive), 1.0)


def known_places(y, p):
    places = tf.where(y[..., 2] >= 0)
    labels = tf.cast(tf.gather_nd(y[..., 2], places), tf.int32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.gather_nd(p[..., 2:], places)))


def by_their_number(y, p):
    keep = y[..., 2] >= 0
    each = tf.boolean_mask(tf.reduce_sum(tf.square(p[..., :2] - y[..., :2]), axis=-1), keep)
    return tf.reduce_sum(each) / tf.cast(tf.maximum(tf.size(each), 1), tf.float32)


def by_row(y, p):
    real = tf.cast(y[..., 2] > -1, tf.float32)
    each = tf.reduce_sum(real * tf.reduce_sum(tf.square(p[..., :2] - y[..., :2]), axis=-1), axis=-1)
    return each / tf.reduce_mean(real)


class OwnStep(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = known_places(y, p) + 0.1 * tf.reduce_mean(tf.square(p))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"own": loss}


def made(kind=keras.Model):
    inputs = keras.Input((5,))
    outputs = keras.layers.Reshape((6, 5))(keras.layers.Dense(30)(keras.layers.Dense(5, "tanh")(inputs)))
    return kind(inputs, outputs)


models, results = [], []
for model, loss in (
    (made(OwnStep), None),
    (made(), Detection()),
    (made(), known_places),
    (made(), by_their_number),
    (made(), by_row),
):
    model.compile(keras.optimizers.SGD(0.05), loss)
    ring.distribute(model)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    history = model.fit(dataset, epochs=2).history
    models.append(model)
    results.append(history["loss" if loss else "own"])
