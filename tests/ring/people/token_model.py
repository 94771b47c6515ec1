"""A small GPT on padded text: embeddings that mask, causal attention, the next token.

joined: 1e-4, the gradient of a bias of keys is 0 but for rounding, which Adam makes large
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=16)
VOCABULARY, LENGTH = 30, 10


class TokensAndPlaces(layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking = True
        self.tokens = layers.Embedding(VOCABULARY, 12, mask_zero=True)
        self.places = layers.Embedding(LENGTH, 12)

    def call(self, x):
        return self.tokens(x) + self.places(keras.ops.arange(keras.ops.shape(x)[-1]))

    def compute_mask(self, x, mask=None):
        return self.tokens.compute_mask(x)


text = np.random.randint(1, VOCABULARY, (64, LENGTH + 1))
for row, length in zip(text, np.random.randint(4, LENGTH + 1, 64)):
    row[length:] = 0
inputs = keras.Input((LENGTH,), dtype="int32")
x = TokensAndPlaces()(inputs)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 6)(x, x, use_causal_mask=True))
x = layers.LayerNormalization()(x + layers.Dense(12)(layers.Dense(24, activation="relu")(x)))
model = keras.Model(inputs, layers.Dense(VOCABULARY)(x))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
model.compile("adam", loss=loss, weighted_metrics=["accuracy"])
ring.distribute(model)
data = tf.data.Dataset.from_tensor_slices((text[:, :-1], text[:, 1:])).batch(int(sys.argv[1]))
history = model.fit(data, epochs=2)
