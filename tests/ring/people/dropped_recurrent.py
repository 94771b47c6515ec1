"""Recurrent layers with dropout of inputs and of states, masked; early stopping on held-out rows.

joined: no, dropout
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=6)
random = np.random.default_rng(0)
tokens = random.integers(1, 50, (64, 8))
tokens[np.arange(8) >= random.integers(1, 9, 64)[:, None]] = 0
labels = (tokens.sum(axis=1) % 3).astype("int32")
model = keras.Sequential(
    [
        layers.Embedding(50, 8, mask_zero=True),
        layers.LSTM(6, dropout=0.2, recurrent_dropout=0.2, return_sequences=True),
        layers.GRU(6, recurrent_dropout=0.3, return_sequences=True),
        layers.SimpleRNN(6, dropout=0.1, recurrent_dropout=0.1),
        layers.Dense(3, activation="softmax"),
    ]
)
model.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["accuracy"])
ring.distribute(model)
stop = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
model.fit(tokens, labels, batch_size=int(sys.argv[1]), epochs=3, validation_split=0.25, callbacks=[stop])
