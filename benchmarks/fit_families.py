"""The models of benchmarks/fit.py: Keras 3 on any backend, and the batches that each takes, from a seed.

Inputs are what a host sends: uint8 images, int32 tokens. Layers are Keras's own, written as its users write them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Batch = tuple[Any, Any]
LENGTH, VOCABULARY = 512, 32_000
ITEMS, FIELDS, DENSE = 1_000_000, 8, 13  # a recommender's


@dataclass(frozen=True, slots=True)
class Family:
    """model: built uncompiled, its outputs logits of classes. batch: (random numbers, samples) -> (inputs, labels)."""

    model: Callable[[], Any]
    batch: Callable[[np.random.Generator, int], Batch]
    samples: int  # of one GPU's batch
    optimizer: str = "adamw"


def images(random: np.random.Generator, samples: int) -> Batch:
    x = random.integers(0, 256, (samples, 224, 224, 3), np.uint8)
    return x, random.integers(0, 1000, samples, np.int32)


def _maps(random: np.random.Generator, samples: int) -> Batch:
    x = random.integers(0, 256, (samples, 224, 224, 3), np.uint8)
    return x, random.integers(0, 2, (samples, 224, 224), np.int32)


def _next_tokens(random: np.random.Generator, samples: int) -> Batch:
    tokens = random.integers(0, VOCABULARY, (samples, LENGTH + 1), np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def _sentences(random: np.random.Generator, samples: int) -> Batch:
    tokens = random.integers(1, VOCABULARY, (samples, LENGTH), np.int32)
    lengths = random.integers(LENGTH // 2, LENGTH + 1, samples)
    tokens[np.arange(LENGTH) >= lengths[:, None]] = 0
    return tokens, random.integers(0, 2, samples, np.int32)


def _clicks(random: np.random.Generator, samples: int) -> Batch:
    x = {
        "items": random.integers(0, ITEMS, (samples, FIELDS), np.int32),
        "numbers": random.normal(size=(samples, DENSE)).astype(np.float32),
    }
    return x, random.integers(0, 2, samples, np.int32)


def _series(random: np.random.Generator, samples: int) -> Batch:
    return random.normal(size=(samples, 128, 64)).astype(np.float32), random.integers(0, 10, samples, np.int32)


def _scaled() -> tuple[Any, Any]:
    import keras

    inputs = keras.Input((224, 224, 3), dtype="uint8")
    return inputs, keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)


def application(name: str, **options: Any) -> Any:
    """An image classifier of keras.applications without its own scaling."""
    import keras

    inputs, x = _scaled()
    body = getattr(keras.applications, name)(include_top=False, weights=None, input_shape=(224, 224, 3), **options)
    x = keras.layers.GlobalAveragePooling2D()(body(x))
    return keras.Model(inputs, keras.layers.Dense(1000, dtype="float32")(x), name=name.lower())


def _blocks(x: Any, *, layers: int, width: int, heads: int, causal: bool = False, mask: Any = None) -> Any:
    """Transformer layers, normalised before each part."""
    from keras import layers as parts

    for _ in range(layers):
        y = parts.LayerNormalization(epsilon=1e-5)(x)
        attention = parts.MultiHeadAttention(heads, width // heads)
        x = x + attention(y, y, use_causal_mask=causal, attention_mask=mask)
        y = parts.Dense(4 * width, activation="gelu")(parts.LayerNormalization(epsilon=1e-5)(x))
        x = x + parts.Dense(width)(y)
    return parts.LayerNormalization(epsilon=1e-5)(x)


def _embedded(tokens: Any, width: int) -> Any:
    import keras

    places = keras.ops.arange(LENGTH)[None]
    where = keras.layers.Embedding(LENGTH, width)(places)
    return keras.layers.Embedding(VOCABULARY, width)(tokens) + where


def decoder() -> Any:
    """12 layers x 768, 12 heads, 512 tokens, 32 000 words: GPT-2's smallest shape."""
    import keras

    tokens = keras.Input((LENGTH,), dtype="int32")
    x = _blocks(_embedded(tokens, 768), layers=12, width=768, heads=12, causal=True)
    return keras.Model(tokens, keras.layers.Dense(VOCABULARY)(x), name="decoder")


def encoder() -> Any:
    """12 layers x 768 over sentences of unlike lengths, the rest of each masked: BERT-base's shape."""
    import keras

    tokens = keras.Input((LENGTH,), dtype="int32")
    mask = keras.ops.expand_dims(keras.ops.not_equal(tokens, 0), 1)
    x = _blocks(_embedded(tokens, 768), layers=12, width=768, heads=12, mask=mask)
    return keras.Model(tokens, keras.layers.Dense(2, dtype="float32")(x[:, 0]), name="encoder")


def vit() -> Any:
    """ViT-S/16: 12 layers x 384, 6 heads, 196 patches."""
    import keras

    inputs, x = _scaled()
    x = keras.layers.Reshape((196, 384))(keras.layers.Conv2D(384, 16, strides=16)(x))
    x = x + keras.layers.Embedding(196, 384)(keras.ops.arange(196)[None])
    x = _blocks(x, layers=12, width=384, heads=6)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(1000, dtype="float32")(x), name="vit_s")


def unet() -> Any:
    """64 to 1024 channels, four times down and up, batch normalisation."""
    import keras
    from keras import layers as parts

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = parts.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = parts.Activation("relu")(parts.BatchNormalization()(x))
        return x

    inputs, x = _scaled()
    kept = []
    for filters in (64, 128, 256, 512):
        x = twice(x, filters)
        kept.append(x)
        x = parts.MaxPooling2D()(x)
    x = twice(x, 1024)
    for filters in (512, 256, 128, 64):
        x = parts.Conv2DTranspose(filters, 2, strides=2)(x)
        x = twice(parts.Concatenate()([x, kept.pop()]), filters)
    return keras.Model(inputs, parts.Conv2D(2, 1, dtype="float32")(x), name="unet")


def recommender() -> Any:
    """One table of a million items x 64, eight looked up a sample, and three dense layers."""
    import keras
    from keras import layers as parts

    items, numbers = keras.Input((FIELDS,), dtype="int32", name="items"), keras.Input((DENSE,), name="numbers")
    x = parts.Concatenate()([parts.Flatten()(parts.Embedding(ITEMS, 64)(items)), numbers])
    for units in (1024, 512, 256):
        x = parts.Dense(units, activation="relu")(x)
    return keras.Model({"items": items, "numbers": numbers}, parts.Dense(2, dtype="float32")(x), name="recommender")


def recurrent(cell: str) -> Any:
    """Two layers of 512 `LSTM` or `GRU` cells over 128 steps of 64 numbers."""
    import keras
    from keras import layers as parts

    inputs, layer = keras.Input((128, 64)), getattr(parts, cell)
    x = layer(512)(layer(512, return_sequences=True)(inputs))
    return keras.Model(inputs, parts.Dense(10, dtype="float32")(x), name=cell.lower())


FAMILIES = {
    "resnet50": Family(lambda: application("ResNet50"), images, 256, optimizer="sgd"),
    "convnext_tiny": Family(lambda: application("ConvNeXtTiny", include_preprocessing=False), images, 128),
    "efficientnetv2b0": Family(lambda: application("EfficientNetV2B0", include_preprocessing=False), images, 256),
    "vit_s": Family(vit, images, 256),
    "decoder": Family(decoder, _next_tokens, 32),
    "encoder": Family(encoder, _sentences, 32),
    "unet": Family(unet, _maps, 32),
    "recommender": Family(recommender, _clicks, 16_384),
    "lstm": Family(lambda: recurrent("LSTM"), _series, 1024),
    "gru": Family(lambda: recurrent("GRU"), _series, 1024),
}
