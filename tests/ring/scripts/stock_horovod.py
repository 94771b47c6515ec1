"""The same script as Horovod's own documentation would have it. usage: stock_horovod.py OUT BATCH"""

import sys
from pathlib import Path

import horovod.keras as hvd
import keras
import numpy as np

from harness.doctor import equality

hvd.init()
out, batch = Path(sys.argv[1]), int(sys.argv[2])
random = np.random.default_rng(0)
share = slice(hvd.rank(), None, hvd.size())
x = random.normal(size=(320, 20)).astype("float32")[share]
y = random.integers(0, 3, size=320)[share]
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
model.fit(x, y, batch_size=batch, epochs=1, shuffle=False, verbose=0)
equality.save_weights(model, out / f"rank{hvd.rank()}.npz")
