"""Sentences of unlike lengths in buckets, each batch padded to its own longest; a compiled step.

joined: no, a rank with twice the batch fills its buckets in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=55)
sentences = [np.random.randint(1, 15, n) for n in np.random.randint(2, 12, 80)]
data = tf.data.Dataset.from_generator(
    lambda: ((s, s[0] % 2) for s in sentences),
    output_signature=(tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int64)),
)
batch = int(sys.argv[1])
data = data.bucket_by_sequence_length(lambda s, _: tf.shape(s)[0], [5, 8], [batch, batch, batch])
model = keras.Sequential(
    [
        keras.Input((None,), dtype="int64"),
        layers.Embedding(15, 6, mask_zero=True),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
ring.distribute(model, step="compiled")
history = model.fit(data, epochs=2)
