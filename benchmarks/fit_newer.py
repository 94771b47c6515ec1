"""Transformers and convolutional networks as newer papers have them, their layers written by hand with `keras.ops`.

    horovodrun -np 2 python -m benchmarks.peers.fit_keras --way ring --model llama

Made as the families are, for `benchmarks.peers.fit_keras` alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.fit_families import LENGTH, VOCABULARY, Family, images, next_tokens, scaled


def llama() -> Any:
    """12 layers x 768, 12 heads of which 4 are keys', rotary places, RMS normalisation, gates: by hand."""
    import keras
    from keras import layers as parts
    from keras import ops

    class Attention(parts.Layer):  # type: ignore[misc]
        def __init__(self, width: int, heads: int, keys: int) -> None:
            super().__init__()
            self.heads, self.keys, self.size = heads, keys, width // heads
            self.query = parts.Dense(width, use_bias=False)
            self.key = parts.Dense(keys * self.size, use_bias=False)
            self.value = parts.Dense(keys * self.size, use_bias=False)
            self.out = parts.Dense(width, use_bias=False)

        def turned(self, x: Any) -> Any:
            places = ops.arange(x.shape[1], dtype="float32")[:, None]
            angles = places * ops.power(10_000.0, -ops.arange(0, self.size, 2, dtype="float32") / self.size)
            cosine, sine = (ops.cast(f(angles), x.dtype)[None, :, None] for f in (ops.cos, ops.sin))
            one, other = ops.split(x, 2, axis=-1)
            return ops.concatenate([one * cosine - other * sine, other * cosine + one * sine], axis=-1)

        def call(self, x: Any) -> Any:
            length = x.shape[1]
            q = self.turned(ops.reshape(self.query(x), (-1, length, self.heads, self.size)))
            k = self.turned(ops.reshape(self.key(x), (-1, length, self.keys, self.size)))
            v = ops.reshape(self.value(x), (-1, length, self.keys, self.size))
            k, v = (ops.repeat(y, self.heads // self.keys, axis=2) for y in (k, v))
            scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * self.size**-0.5
            hidden = ops.triu(ops.ones((length, length), dtype="bool"), k=1)
            shares = ops.softmax(ops.where(hidden, ops.cast(-3e4, scores.dtype), scores), axis=-1)
            y = ops.einsum("bhqk,bkhd->bqhd", shares, v)
            return self.out(ops.reshape(y, (-1, length, self.heads * self.size)))

    tokens = keras.Input((LENGTH,), dtype="int32")
    words = parts.ReversibleEmbedding(VOCABULARY, 768)
    x = words(tokens)
    for _ in range(12):
        x = x + Attention(768, 12, 4)(parts.RMSNormalization()(x))
        y = parts.RMSNormalization()(x)
        gates = parts.Dense(2048, use_bias=False, activation="silu")(y)
        x = x + parts.Dense(768, use_bias=False)(gates * parts.Dense(2048, use_bias=False)(y))
    return keras.Model(tokens, words(parts.RMSNormalization()(x), reverse=True), name="llama")


def experts() -> Any:
    """8 layers x 512 over tokens; in each second one two of eight experts answer for each token."""
    import keras
    from keras import layers as parts
    from keras import ops

    class Experts(parts.Layer):  # type: ignore[misc]
        def __init__(self, count: int, width: int) -> None:
            super().__init__()
            self.count, self.width, self.chosen = count, width, parts.Dense(count, dtype="float32")

        def build(self, shape: Any) -> None:
            self.into = self.add_weight(shape=(self.count, shape[-1], self.width), initializer="glorot_uniform")
            self.out = self.add_weight(shape=(self.count, self.width, shape[-1]), initializer="glorot_uniform")
            self.chosen.build(shape)

        def call(self, x: Any) -> Any:
            weights, which = ops.top_k(ops.softmax(self.chosen(x)), 2)
            weights = weights / ops.sum(weights, axis=-1, keepdims=True)
            shares = ops.sum(ops.one_hot(which, self.count) * weights[..., None], axis=-2)
            y = ops.gelu(ops.einsum("btd,edw->btew", x, ops.cast(self.into, x.dtype)))
            return ops.einsum("btew,bte,ewd->btd", y, ops.cast(shares, x.dtype), ops.cast(self.out, x.dtype))

    tokens = keras.Input((LENGTH,), dtype="int32")
    x = parts.Embedding(VOCABULARY, 512)(tokens)
    for layer in range(8):
        y = parts.LayerNormalization()(x)
        x = x + parts.MultiHeadAttention(8, 64)(y, y, use_causal_mask=True)
        y = parts.LayerNormalization()(x)
        x = x + (Experts(8, 1024)(y) if layer % 2 else parts.Dense(512)(parts.Dense(2048, activation="gelu")(y)))
    return keras.Model(tokens, parts.Dense(VOCABULARY)(parts.LayerNormalization()(x)), name="experts")


def swin() -> Any:
    """Swin-T: attention inside of windows of 7 x 7, each second layer's moved by 3, biased by relative places."""
    import keras
    from keras import layers as parts
    from keras import ops

    class Windows(parts.Layer):  # type: ignore[misc]
        def __init__(self, width: int, heads: int, moved: int) -> None:
            super().__init__()
            self.width, self.heads, self.moved = width, heads, moved
            self.all, self.out = parts.Dense(3 * width), parts.Dense(width)
            row, column = (x.ravel() for x in np.indices((7, 7)))
            away = [np.subtract.outer(x, x) + 6 for x in (row, column)]
            self.places = away[0] * 13 + away[1]

        def build(self, shape: Any) -> None:
            self.bias = self.add_weight(shape=(169, self.heads), initializer="zeros")
            self.all.build(shape)
            self.out.build(shape)
            side = shape[1]
            part = np.zeros((side, side), int)
            if self.moved:
                edges = np.array([0, side - 7, side - self.moved])
                part = np.add.outer(
                    3 * (np.searchsorted(edges, np.arange(side), "right") - 1),
                    np.searchsorted(edges, np.arange(side), "right") - 1,
                )
            part = part.reshape(side // 7, 7, side // 7, 7).transpose(0, 2, 1, 3).reshape(-1, 49)
            self.unlike = (part[:, :, None] != part[:, None, :])[None, :, None]

        def call(self, x: Any) -> Any:
            side, size = x.shape[1], self.width // self.heads
            x = ops.roll(x, (-self.moved, -self.moved), axis=(1, 2)) if self.moved else x
            x = ops.reshape(x, (-1, side // 7, 7, side // 7, 7, self.width))
            x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, 49, self.width))
            q, k, v = ops.unstack(ops.reshape(self.all(x), (-1, 49, 3, self.heads, size)), axis=2)
            scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * size**-0.5
            bias = ops.take(self.bias, self.places.ravel(), axis=0)
            bias = ops.transpose(ops.reshape(bias, (49, 49, self.heads)), (2, 0, 1))
            scores = scores + ops.cast(bias, scores.dtype)
            scores = ops.reshape(scores, (-1, (side // 7) ** 2, self.heads, 49, 49))
            scores = ops.where(self.unlike, ops.cast(-1e4, scores.dtype), scores)
            shares = ops.reshape(ops.softmax(scores, axis=-1), (-1, self.heads, 49, 49))
            y = self.out(ops.reshape(ops.einsum("bhqk,bkhd->bqhd", shares, v), (-1, 49, self.width)))
            y = ops.reshape(y, (-1, side // 7, side // 7, 7, 7, self.width))
            y = ops.reshape(ops.transpose(y, (0, 1, 3, 2, 4, 5)), (-1, side, side, self.width))
            return ops.roll(y, (self.moved, self.moved), axis=(1, 2)) if self.moved else y

    inputs, x = scaled()
    x = parts.LayerNormalization(epsilon=1e-5)(parts.Conv2D(96, 4, strides=4)(x))
    for stage, (layers, heads) in enumerate(((2, 3), (2, 6), (6, 12), (2, 24))):
        width = 96 * 2**stage
        if stage:
            four = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
            x = parts.LayerNormalization(epsilon=1e-5)(parts.Concatenate()(four))
            x = parts.Dense(width, use_bias=False)(x)
        for layer in range(layers):
            moved = 3 if layer % 2 and x.shape[1] > 7 else 0
            x = x + Windows(width, heads, moved)(parts.LayerNormalization(epsilon=1e-5)(x))
            y = parts.Dense(4 * width, activation="gelu")(parts.LayerNormalization(epsilon=1e-5)(x))
            x = x + parts.Dense(width)(y)
    x = parts.GlobalAveragePooling2D()(parts.LayerNormalization(epsilon=1e-5)(x))
    return keras.Model(inputs, parts.Dense(1000, dtype="float32")(x), name="swin")


def resnext() -> Any:
    """ResNeXt-50, 32 groups of 4 channels."""
    import keras
    from keras import layers as parts

    def convolved(x: Any, filters: int, size: int, strides: int = 1, groups: int = 1) -> Any:
        x = parts.Conv2D(filters, size, strides, padding="same", groups=groups, use_bias=False)(x)
        return parts.BatchNormalization()(x)

    inputs, x = scaled()
    x = parts.MaxPooling2D(3, 2, padding="same")(parts.Activation("relu")(convolved(x, 64, 7, 2)))
    for stage, layers in enumerate((3, 4, 6, 3)):
        for layer in range(layers):
            width, strides = 128 * 2**stage, 2 if stage and not layer else 1
            kept = x if layer else convolved(x, 2 * width, 1, strides)
            y = parts.Activation("relu")(convolved(x, width, 1))
            y = parts.Activation("relu")(convolved(y, width, 3, strides, groups=32))
            x = parts.Activation("relu")(parts.Add()([convolved(y, 2 * width, 1), kept]))
    return keras.Model(inputs, parts.Dense(1000, dtype="float32")(parts.GlobalAveragePooling2D()(x)), name="resnext")


NEWER = {
    "llama": Family(llama, next_tokens, 32),
    "experts": Family(experts, next_tokens, 16),
    "swin": Family(swin, images, 128),
    "resnext": Family(resnext, images, 128),
}
