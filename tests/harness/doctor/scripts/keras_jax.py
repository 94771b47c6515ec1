"""A Keras model on JAX, in one process or one of a launcher's; the word says how it is laid out, or what is wrong."""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

how = sys.argv[1]
rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if size > 1 and how in ("right", "same_samples", "not_laid_out", "model"):
    keras.distribution.initialize(f"127.0.0.1:{sys.argv[2]}", size, rank)
keras.utils.set_random_seed(rank if how == "other_seeds" else 3)
if how in ("right", "same_samples"):
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
if how in ("model", "no_key"):
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((1, len(devices)), ["batch", "model"], devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["no/such/kernel" if how == "no_key" else ".*hidden/kernel"] = (None, "model")
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts, auto_shard_dataset=False))
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, name="hidden"), keras.layers.Dense(1, name="last")])
model.compile(keras.optimizers.SGD(0.05), "mse")
x = np.random.RandomState(1).normal(size=(256, 8)).astype("float32")
if how in ("right", "other_seeds", "not_laid_out"):
    x = x[rank::size]
model.fit(x, x[:, :1], batch_size=16, verbose=0)
