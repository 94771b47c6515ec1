"""Models of other fields: sound, video, points, molecules, tables, series; of Keras's layers and of `keras.ops`.

    horovodrun -np 2 python -m benchmarks.peers.fit_keras --way ring --model speech

Made as the families are, for `benchmarks.peers.fit_keras` alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.fit_families import Batch, Family, scaled

FRAMES, POINTS, CORNERS = (16, 64, 64, 1), 2_048, 3
ATOMS, BONDS = 32, 96
TABLES = (100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10) * 2
HEARD, LETTERS, SPOKEN = 512, 32, 48  # frames of a spectrum, an alphabet, a sentence of it
PAST, NEXT = 512, 96
RAYS, NEAR_TO_FAR = 64, 32
SERIES = 96  # steps


def _videos(random: np.random.Generator, samples: int) -> Batch:
    x = random.uniform(size=(samples, FRAMES[0] + 1, *FRAMES[1:])).astype(np.float32)
    return x[:, :-1].copy(), x[:, 1:].copy()


def _points(random: np.random.Generator, samples: int) -> Batch:
    return random.normal(size=(samples, POINTS, CORNERS)).astype(np.float32), random.integers(0, 10, samples, np.int32)


def _molecules(random: np.random.Generator, samples: int) -> Batch:
    x = {
        "atoms": random.normal(size=(samples, ATOMS, 32)).astype(np.float32),
        "bonds": random.normal(size=(samples, BONDS, 8)).astype(np.float32),
        "pairs": random.integers(0, ATOMS, (samples, BONDS, 2), np.int32),
    }
    return x, random.integers(0, 2, samples, np.int32)


def _rows(random: np.random.Generator, samples: int) -> Batch:
    x = {f"c{i}": random.integers(0, words, (samples, 1), np.int32) for i, words in enumerate(TABLES)}
    x["numbers"] = random.normal(size=(samples, 13)).astype(np.float32)
    return x, random.integers(0, 2, samples, np.int32)


def _spoken(random: np.random.Generator, samples: int) -> Batch:
    x = random.normal(size=(samples, HEARD, 80)).astype(np.float32)
    return x, random.integers(1, LETTERS, (samples, SPOKEN), np.int32)


def _blurred(random: np.random.Generator, samples: int) -> Batch:
    x = random.integers(0, 256, (samples, 48, 48, 3), np.uint8)
    return x, random.uniform(size=(samples, 192, 192, 3)).astype(np.float32)


def _forecasts(random: np.random.Generator, samples: int) -> Batch:
    x = random.normal(size=(samples, PAST + NEXT)).astype(np.float32)
    return x[:, :PAST].copy(), x[:, PAST:].copy()


def _series(random: np.random.Generator, samples: int) -> Batch:
    x = random.normal(size=(samples, SERIES + 1, 8)).astype(np.float32)
    return x[:, :-1].copy(), x[:, -1].copy()


def _rays(random: np.random.Generator, samples: int) -> Batch:
    x = random.normal(size=(samples, RAYS, 6)).astype(np.float32)
    return x, random.uniform(size=(samples, RAYS, 3)).astype(np.float32)


def videos() -> Any:
    """The next frame of each, by three layers of convolutional LSTM cells."""
    import keras
    from keras import layers as parts

    x = inputs = keras.Input(FRAMES)
    for size in (5, 3, 1):
        x = parts.ConvLSTM2D(64, size, padding="same", return_sequences=True, activation="relu")(x)
        x = parts.BatchNormalization()(x)
    x = parts.Conv3D(1, 3, padding="same", activation="sigmoid", dtype="float32")(x)
    return keras.Model(inputs, x, name="videos")


def points() -> Any:
    """PointNet: clouds of points turned by matrices that two smaller networks find, and the largest of all points."""
    import keras
    from keras import layers as parts

    def seen(x: Any, filters: int, layer: Any = None) -> Any:
        x = (parts.Dense(filters) if layer == "dense" else parts.Conv1D(filters, 1))(x)
        return parts.Activation("relu")(parts.BatchNormalization(momentum=0.0)(x))

    def turned(inputs: Any, width: int) -> Any:
        x = seen(seen(seen(inputs, 64), 128), 1024)
        x = seen(seen(parts.GlobalMaxPooling1D()(x), 512, "dense"), 256, "dense")
        upright = keras.initializers.Constant(np.eye(width).ravel())
        x = parts.Dense(width * width, kernel_initializer="zeros", bias_initializer=upright)(x)
        return parts.Dot(axes=(2, 1))([inputs, parts.Reshape((width, width))(x)])

    inputs = keras.Input((POINTS, CORNERS))
    x = seen(seen(turned(inputs, CORNERS), 64), 64)
    x = seen(seen(seen(turned(x, 64), 64), 128), 1024)
    x = parts.GlobalMaxPooling1D()(x)
    for units in (512, 256):
        x = parts.Dropout(0.3)(seen(x, units, "dense"))
    return keras.Model(inputs, parts.Dense(10, dtype="float32")(x), name="points")


def molecules() -> Any:
    """Messages between atoms along their bonds, summed for each atom, four times; then a sum over the atoms."""
    import keras
    from keras import layers as parts
    from keras import ops

    class Messages(parts.Layer):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.told, self.kept = parts.Dense(width, activation="relu"), parts.GRUCell(width)

        def call(self, atoms: Any, bonds: Any, pairs: Any) -> Any:
            width, count = atoms.shape[-1], ops.shape(atoms)[0]
            pairs = pairs + ATOMS * ops.arange(count, dtype="int32")[:, None, None]
            flat, (to, of) = ops.reshape(atoms, (-1, width)), ops.unstack(ops.reshape(pairs, (-1, 2)), axis=1)
            bonds = ops.reshape(bonds, (-1, bonds.shape[-1]))
            told = self.told(ops.concatenate([ops.take(flat, of, axis=0), bonds], axis=-1))
            heard = ops.segment_sum(told, to, num_segments=count * ATOMS)
            return ops.reshape(self.kept(heard, [flat])[0], (-1, ATOMS, width))

    atoms = keras.Input((ATOMS, 32), name="atoms")
    bonds, pairs = keras.Input((BONDS, 8), name="bonds"), keras.Input((BONDS, 2), dtype="int32", name="pairs")
    x = parts.Dense(128)(atoms)
    for _ in range(4):
        x = Messages(128)(x, bonds, pairs)
    x = parts.Dense(512, activation="relu")(parts.GlobalAveragePooling1D()(x))
    every = {"atoms": atoms, "bonds": bonds, "pairs": pairs}
    return keras.Model(every, parts.Dense(2, dtype="float32")(x), name="molecules")


def tables() -> Any:
    """DLRM: 26 columns of words, a table for each, their products two by two, and 13 numbers."""
    import keras
    from keras import layers as parts
    from keras import ops

    columns = [keras.Input((1,), dtype="int32", name=f"c{i}") for i in range(len(TABLES))]
    numbers = keras.Input((13,), name="numbers")
    x = numbers
    for units in (512, 256, 64):
        x = parts.Dense(units, activation="relu")(x)
    looked_up = [
        parts.Flatten()(parts.Embedding(words, 64)(column)) for words, column in zip(TABLES, columns, strict=True)
    ]
    every = ops.stack([x, *looked_up], axis=1)
    products = ops.matmul(every, ops.transpose(every, (0, 2, 1)))
    row, column = np.triu_indices(len(looked_up) + 1, k=1)
    flat = ops.take(ops.reshape(products, (-1, products.shape[1] ** 2)), row * products.shape[1] + column, axis=1)
    x = parts.Concatenate()([x, flat])
    for units in (512, 256):
        x = parts.Dense(units, activation="relu")(x)
    inputs = {f"c{i}": column for i, column in enumerate(columns)} | {"numbers": numbers}
    return keras.Model(inputs, parts.Dense(2, dtype="float32")(x), name="tables")


def speech() -> Any:
    """A small Conformer: 8 layers x 256 over spectra, depthwise convolutions of 31 frames, loss by CTC."""
    import keras
    from keras import layers as parts

    def thought(x: Any) -> Any:
        y = parts.Dense(1024, activation="silu")(parts.LayerNormalization()(x))
        return x + 0.5 * parts.Dropout(0.1)(parts.Dense(256)(y))

    def convolved(x: Any) -> Any:
        y = parts.Dense(512)(parts.LayerNormalization()(x))
        y = y[..., :256] * keras.ops.sigmoid(y[..., 256:])
        y = parts.BatchNormalization()(parts.DepthwiseConv1D(31, padding="same")(y))
        return x + parts.Dense(256)(parts.Activation("silu")(y))

    inputs = keras.Input((HEARD, 80))
    x = parts.Reshape((HEARD, 80, 1))(inputs)
    for _ in range(2):
        x = parts.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x)
    x = parts.Dense(256)(parts.Reshape((HEARD // 4, 20 * 64))(x))
    for _ in range(8):
        x = thought(x)
        y = parts.LayerNormalization()(x)
        x = convolved(x + parts.MultiHeadAttention(4, 64)(y, y))
        x = parts.LayerNormalization()(thought(x))
    return keras.Model(inputs, parts.Dense(LETTERS, dtype="float32")(x), name="speech")


def sharper() -> Any:
    """EDSR: 16 residual blocks of 64 channels, four times as wide and high at the end."""
    import keras
    from keras import layers as parts
    from keras import ops

    inputs, x = scaled((48, 48, 3))
    x = kept = parts.Conv2D(64, 3, padding="same")(x)
    for _ in range(16):
        y = parts.Conv2D(64, 3, padding="same", activation="relu")(x)
        x = x + parts.Conv2D(64, 3, padding="same")(y)
    x = kept + parts.Conv2D(64, 3, padding="same")(x)
    for _ in range(2):
        x = parts.Conv2D(256, 3, padding="same")(x)
        _, side, _, channels = x.shape
        x = ops.transpose(ops.reshape(x, (-1, side, side, 2, 2, channels // 4)), (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, 2 * side, 2 * side, channels // 4))
    return keras.Model(inputs, parts.Conv2D(3, 3, padding="same", dtype="float32")(x), name="sharper")


def forecast() -> Any:
    """N-BEATS: 30 blocks of four dense layers, each of which takes away what it explains of the past."""
    import keras
    from keras import layers as parts

    past = left = keras.Input((PAST,))
    found = []
    for _ in range(30):
        x = left
        for _ in range(4):
            x = parts.Dense(512, activation="relu")(x)
        left = parts.Subtract()([left, parts.Dense(PAST)(x)])
        found.append(parts.Dense(NEXT)(x))
    return keras.Model(past, parts.Activation("linear", dtype="float32")(parts.Add()(found)), name="forecast")


def series() -> Any:
    """What is to come of 8 series, by recurrent layers with options that cuDNN has not."""
    import keras
    from keras import layers as parts

    x = inputs = keras.Input((SERIES, 8))
    x = parts.Bidirectional(parts.LSTM(128, return_sequences=True, recurrent_dropout=0.2))(x)
    x = parts.LSTM(128, return_sequences=True, activation="relu")(x)
    x = parts.SimpleRNN(128)(x)
    return keras.Model(inputs, parts.Dense(8, dtype="float32")(x), name="series")


def rays() -> Any:
    """NeRF: what 32 places on each ray let through, by 8 dense layers over sines of where they are."""
    import keras
    from keras import layers as parts
    from keras import ops

    def rendered(x: Any) -> Any:
        x = ops.cast(x, "float32")
        solid = 1.0 - ops.exp(-ops.relu(x[..., 3]) / NEAR_TO_FAR)
        through = ops.cumprod(1.0 - solid + 1e-10, axis=-1) / (1.0 - solid + 1e-10)
        return ops.sum((solid * through)[..., None] * ops.sigmoid(x[..., :3]), axis=-2)

    inputs = keras.Input((RAYS, 6))
    far = ops.linspace(2.0, 6.0, NEAR_TO_FAR)[:, None]
    places = inputs[:, :, None, :3] + inputs[:, :, None, 3:] * far
    waves = [f(2.0**i * places) for i in range(10) for f in (ops.sin, ops.cos)]
    x = kept = ops.concatenate([places, *waves], axis=-1)
    for layer in range(8):
        x = parts.Dense(256, activation="relu")(x)
        x = parts.Concatenate()([x, kept]) if layer == 4 else x
    x = parts.Lambda(rendered, output_shape=(RAYS, 3), dtype="float32")(parts.Dense(4)(x))
    return keras.Model(inputs, x, name="rays")


FIELDS = {
    "videos": Family(videos, _videos, 16, loss="binary_crossentropy"),
    "sharper": Family(sharper, _blurred, 64, loss="mean_absolute_error"),
    "points": Family(points, _points, 64),
    "series": Family(series, _series, 256, loss="mean_squared_error"),
    "rays": Family(rays, _rays, 64, loss="mean_squared_error"),
    "molecules": Family(molecules, _molecules, 256),
    "speech": Family(speech, _spoken, 64, loss="ctc"),
    "tables": Family(tables, _rows, 8_192),
    "forecast": Family(forecast, _forecasts, 1_024, loss="mean_squared_error"),
}
