"""A Keras script that trains on all GPUs: the two marked lines are all that it needs.

horovodrun -np 2 python examples/keras_fit.py
"""

import keras
import numpy as np

from ringscope import ring

ring.init()  # <- the first line: one GPU for each process

random = np.random.default_rng(0)
x = random.normal(size=(2048, 20)).astype("float32")
y = (x[:, :3].argmax(axis=1) + 3 * (x[:, 3] > 0)).astype("int64")  # six classes that can be learned

model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(6)])
model.compile(
    optimizer=keras.optimizers.Adam(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
ring.distribute(model)  # <- the second line

# Each rank trains on its own share of x and y; batch_size is that of one rank. Rank 0 alone prints.
history = model.fit(x, y, batch_size=64, epochs=5, verbose=2)

if ring.rank() == 0:
    print(f"loss {history.history['loss'][0]:.3f} -> {history.history['loss'][-1]:.3f} on {ring.size()} ranks")
