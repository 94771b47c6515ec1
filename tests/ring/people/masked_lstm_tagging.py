"""Tags for the words of padded sentences, weights for each word, a compiled step.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=54)
lengths = np.random.randint(2, 9, 64)
sentences = np.random.randint(1, 15, (64, 8)) * (np.arange(8) < lengths[:, None])
tags = np.random.randint(0, 4, (64, 8))
model = keras.Sequential(
    [
        keras.Input((8,), dtype="int32"),
        layers.Embedding(15, 6, mask_zero=True),
        layers.Bidirectional(layers.LSTM(5, return_sequences=True)),
        layers.TimeDistributed(layers.Dense(4)),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
ring.distribute(model, step="compiled")
history = model.fit(sentences, tags, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
