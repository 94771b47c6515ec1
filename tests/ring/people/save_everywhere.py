"""Every rank saves the model to one file and folder, reads it again and trains on, as one process does.

joined: 1e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x, y = np.random.normal(size=(96, 40)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(2000, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
ring.distribute(model)
(folder / "exported").mkdir(exist_ok=True)
(folder / "exported" / "mine.txt").touch()
for part in range(2):
    model.fit(x, y, batch_size=batch, shuffle=False)
    model.save(folder / "model.keras")
    model = keras.models.load_model(folder / "model.keras")
    ring.distribute(model)
    model.save_weights(folder / "model.weights.h5")
    model.load_weights(folder / "model.weights.h5")
    model.export(folder / "exported")
    exported = tf.saved_model.load(folder / "exported")
    np.testing.assert_allclose(exported.serve(tf.constant(x)), model(x), atol=1e-5)
assert (folder / "exported" / "mine.txt").exists()
