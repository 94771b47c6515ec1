"""LoRA: a trained network frozen, low-rank updates of its kernels trained on other data, saved and read again.

joined: 1e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=3)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x, y = np.random.normal(size=(64, 6)).astype("float32"), np.random.randint(0, 3, 64)
model = keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="relu", name="a"), layers.Dense(3, name="b")])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss)
ring.distribute(model)
model.fit(x, y, batch_size=batch, shuffle=False)
for layer in model.layers:
    layer.enable_lora(2)
    layer.bias.trainable = False
model.compile(keras.optimizers.AdamW(1e-2), loss, metrics=["accuracy"])
ring.distribute(model)
history = model.fit(x, y, batch_size=batch, epochs=3, shuffle=False, validation_split=0.25)
assert len(model.trainable_weights) == 4
if ring.rank() == 0:
    model.save(folder / "lora.keras")
