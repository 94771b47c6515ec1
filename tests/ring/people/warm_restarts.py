"""Rates and state of an optimizer set by hand between fits: the count of steps put back,
weights left out of decay, constraints, spectral normalisation, a run that goes on from a .keras file.

joined: 5e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=87)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x = np.random.normal(size=(64, 6)).astype("float32")
model = keras.Sequential(
    [
        keras.Input((6,)),
        layers.SpectralNormalization(layers.Dense(8, activation="tanh"), power_iterations=2),
        layers.Dense(8, activation="gelu", kernel_constraint=keras.constraints.MaxNorm(1.0)),
        layers.LayerNormalization(),
        layers.Dense(1, kernel_constraint="non_neg", kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-3)),
    ]
)
optimizer = keras.optimizers.AdamW(
    keras.optimizers.schedules.CosineDecayRestarts(0.02, 4), weight_decay=0.05, epsilon=1e-3
)
optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
model.compile(optimizer, "mse", metrics=["mae"])
ring.distribute(model)
first = model.fit(x, x[:, :1], batch_size=batch, epochs=2, shuffle=False, verbose=0)
model.optimizer.iterations.assign(0)
second = model.fit(x, x[:, :1], batch_size=batch, epochs=3, initial_epoch=2, shuffle=False, verbose=0)
model.save(folder / "kept.keras")
again = keras.models.load_model(folder / "kept.keras")
ring.distribute(again)
third = again.fit(x, x[:, :1], batch_size=batch, epochs=1, shuffle=False, verbose=0, validation_split=0.25)
