"""Tickets: a title, tags and a number go in, a priority and a department come out; dictionaries, loss weights.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=2)
title = keras.Input((5,), name="title", dtype="int32")
tags = keras.Input((4,), name="tags")
words = layers.GlobalAveragePooling1D()(layers.Embedding(20, 6)(title))
features = layers.concatenate([words, tags])
priority = layers.Dense(1, activation="sigmoid", name="priority")(features)
department = layers.Dense(3, activation="softmax", name="department")(layers.Dense(8, activation="relu")(features))
model = keras.Model([title, tags], {"priority": priority, "department": department})
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss={"priority": "binary_crossentropy", "department": "categorical_crossentropy"},
    loss_weights={"priority": 1.0, "department": 0.2},
    metrics={"priority": ["mae"], "department": ["accuracy", keras.metrics.AUC()]},
)
ring.distribute(model)
rng = np.random.default_rng(0)
inputs = {"title": rng.integers(0, 20, (64, 5)), "tags": rng.random((64, 4)).astype("float32")}
targets = {
    "priority": rng.random((64, 1)).astype("float32"),
    "department": np.eye(3, dtype="float32")[rng.integers(0, 3, 64)],
}
history = model.fit(inputs, targets, epochs=2, batch_size=int(sys.argv[1]), shuffle=False)
