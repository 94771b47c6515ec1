"""Keras with ring's two lines. It writes into its folder, and ends by itself. usage: two_lines.py [EPOCHS [sharded]]"""

import sys
from pathlib import Path

import keras
import numpy as np

from ringscope import ring

ring.init()
x, y = np.random.normal(size=(320, 20)).astype("float32"), np.random.randint(0, 3, 320)
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
ring.distribute(model, sharded="sharded" in sys.argv)
Path(f"written-by-rank{ring.rank()}").touch()
model.fit(x, y, batch_size=16, epochs=int((sys.argv[1:] or [100])[0]), verbose=0)
