"""Bags of words as sparse tensors through tf.data, ragged words beside them, several data sets mixed by weights and
zipped, batches padded, a text vectoriser in the pipeline.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=89)
batch = int(sys.argv[1])
rng = np.random.default_rng(2)
counts = np.where(rng.random((64, 30)) < 0.1, rng.integers(1, 4, (64, 30)), 0).astype("float32")
labels = (counts[:, :5].sum(1) > 0).astype("float32")[:, None]

sparse = keras.Sequential([keras.Input((30,), sparse=True), layers.Dense(6, activation="relu"), layers.Dense(1)])
sparse.compile(keras.optimizers.Adagrad(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
ring.distribute(sparse)
data = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(counts), labels)).batch(batch)
one = sparse.fit(data, epochs=2, verbose=0)

texts = [" ".join(f"w{i}" for i in np.flatnonzero(row)) or "none" for row in counts]
vectorize = layers.TextVectorization(ragged=True)
vectorize.adapt(texts)
words = tf.data.Dataset.from_tensor_slices(texts).map(vectorize).map(lambda w: tf.cast(w, tf.int32))
both = tf.data.Dataset.zip(words, tf.data.Dataset.from_tensor_slices(labels))
padded = both.padded_batch(batch, padded_shapes=([None], [1])).prefetch(2)
text = keras.Sequential(
    [
        keras.Input((None,), dtype="int32"),
        layers.Embedding(40, 6, mask_zero=True),
        layers.Bidirectional(layers.GRU(4)),
        layers.Dense(1),
    ]
)
text.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
ring.distribute(text)
two = text.fit(padded, epochs=2, verbose=0)

halves = [tf.data.Dataset.from_tensor_slices((counts[i::2], labels[i::2])) for i in range(2)]
mixed = tf.data.Dataset.choose_from_datasets(halves, tf.data.Dataset.range(2).repeat(32)).batch(batch)
dense = keras.Sequential([keras.Input((30,)), layers.Dense(6, activation="relu"), layers.Dense(1)])
dense.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
ring.distribute(dense)
three = dense.fit(mixed, epochs=2, verbose=0)
