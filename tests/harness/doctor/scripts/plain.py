"""Plain Keras, nothing of Horovod or ring, as people first start it on several ranks. usage: plain.py [SEED]

With a seed the ranks begin alike and see the same batches: their weights are equal though each trains alone."""

import sys
from pathlib import Path

import keras
import numpy as np

if len(sys.argv) > 1:
    keras.utils.set_random_seed(int(sys.argv[1]))
random = np.random.default_rng(0)
x, y = random.normal(size=(320, 20)).astype("float32"), random.integers(0, 3, size=320)
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
Path("written-by-the-script").touch()
model.fit(x, y, batch_size=16, epochs=100, verbose=0)
