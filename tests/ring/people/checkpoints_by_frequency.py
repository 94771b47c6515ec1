"""Checkpoints after so many batches, of which several are taken at once (tf-keras#255).

joined: 1e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=77)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x, y = np.random.normal(size=(384, 4)).astype("float32"), np.random.normal(size=(384, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=4)
ring.distribute(model)
saves = keras.callbacks.ModelCheckpoint(folder / "{epoch}-{batch}.keras", save_freq=8)
history = model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, callbacks=[saves])
ring.meet("saved", None)
found = sorted(folder.glob("*.keras"))
results = [[*map(int, path.stem.split("-")), int(keras.saving.load_model(path).optimizer.iterations)] for path in found]
