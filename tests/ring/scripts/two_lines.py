"""A user's Keras script, made a Horovod one with the two lines marked. usage: two_lines.py OUT BATCH"""

import sys
from pathlib import Path

import keras
import numpy as np

from harness.doctor import equality
from ringscope import ring

ring.init()  # <- the first line

out, batch = Path(sys.argv[1]), int(sys.argv[2])
random = np.random.default_rng(0)
x = random.normal(size=(320, 20)).astype("float32")
y = random.integers(0, 3, size=320)
keras.utils.set_random_seed(ring.rank())  # the ranks start apart: the broadcast must bring them together
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
ring.distribute(model)  # <- the second line
model.fit(x, y, batch_size=batch, epochs=1, shuffle=False, verbose=0)
equality.save_weights(model, out / f"rank{ring.rank()}.npz")
