"""A functional model of two inputs under `fit`, with the usual callbacks. usage: functional_fit.py OUT BATCH [STEP]"""

import sys
from pathlib import Path

import keras
import numpy as np

from harness.doctor import equality
from ringscope import ring

ring.init()  # <- the first line

out, batch = Path(sys.argv[1]), int(sys.argv[2])
random = np.random.default_rng(0)
x = {"a": random.normal(size=(330, 12)).astype("float32"), "b": random.normal(size=(330, 5)).astype("float32")}
y = random.integers(0, 3, size=330)
training = {name: values[:256] for name, values in x.items()}, y[:256]
validation = {name: values[256:] for name, values in x.items()}, y[256:]
keras.utils.set_random_seed(ring.rank())
a, b = keras.Input((12,), name="a"), keras.Input((5,), name="b")
hidden = keras.layers.Dense(32, activation="relu")(keras.layers.Concatenate()([a, b]))
model = keras.Model({"a": a, "b": b}, keras.layers.Dense(3)(hidden))
model.compile(
    keras.optimizers.Adam(0.01, epsilon=1e-3, clipnorm=1.0),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    steps_per_execution=2,
)
ring.distribute(model, step=sys.argv[3] if sys.argv[3:] else "fit")  # <- the second line
out.mkdir(parents=True, exist_ok=True)
callbacks = [
    keras.callbacks.ModelCheckpoint(str(out / "best.keras"), monitor="val_loss", save_best_only=True),
    keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau("val_loss", patience=1),
    keras.callbacks.CSVLogger(str(out / "log.csv")),
    keras.callbacks.TerminateOnNaN(),
]
model.fit(
    *training,
    batch_size=batch,
    epochs=3,
    shuffle=False,
    verbose=0,
    class_weight={0: 1.0, 1: 2.0, 2: 1.0},
    validation_data=validation,
    callbacks=callbacks,
)
equality.save_weights(model, out / f"rank{ring.rank()}.npz")
