"""Message passing over molecules of unlike sizes: ragged tensors whose rows a map joins, so that a batch's parts are
of unlike lengths.

joined: no, a molecule's mean is over the atoms of the batch's largest
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=5)
BATCH = int(sys.argv[1])


class MessagePassing(layers.Layer):
    def build(self, shape):
        self.dense = layers.Dense(8, activation="relu")
        self.dense.build((None, shape[0][-1] * 2))
        self.built = True

    def call(self, inputs):
        atoms, pairs = inputs
        near = tf.gather(atoms, pairs[:, 1])
        summed = tf.math.unsorted_segment_sum(near, pairs[:, 0], tf.shape(atoms)[0])
        return self.dense(tf.concat([atoms, summed], -1))


class Partition(layers.Layer):
    def call(self, inputs):
        atoms, molecule = inputs
        parts = tf.dynamic_partition(atoms, molecule, BATCH)
        counts = [tf.shape(part)[0] for part in parts]
        most = tf.reduce_max(counts)
        padded = [tf.pad(part, [(0, most - count), (0, 0)]) for part, count in zip(parts, counts)]
        return tf.reduce_mean(tf.stack(padded, axis=0), axis=1)


def joined(x, y):
    atoms, pairs = x
    molecule = tf.repeat(tf.range(tf.shape(atoms.row_lengths())[0]), atoms.row_lengths())
    first = tf.repeat(tf.cumsum(atoms.row_lengths(), exclusive=True), pairs.row_lengths())
    return (atoms.merge_dims(0, 1), pairs.merge_dims(0, 1) + first[:, tf.newaxis], molecule), y


sizes = np.random.randint(2, 6, 64)
atoms = tf.ragged.constant([np.random.rand(n, 4).tolist() for n in sizes], ragged_rank=1, dtype=tf.float32)
pairs = tf.ragged.constant([[[i, (i + 1) % n] for i in range(n)] for n in sizes], ragged_rank=1, dtype=tf.int64)
data = tf.data.Dataset.from_tensor_slices(((atoms, pairs), np.random.randint(0, 2, 64))).batch(BATCH).map(joined)
inputs = keras.Input((4,)), keras.Input((2,), dtype="int64"), keras.Input((), dtype="int32")
passed = MessagePassing()(inputs[:2])
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(Partition()([passed, inputs[2]])))
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.SGD(0.1), metrics=[keras.metrics.AUC(name="AUC")])
ring.distribute(model)
history = model.fit(data, epochs=2, class_weight={0: 2.0, 1: 0.5})
