"""Models that many people train today, as they write them: transformers that drop numbers and scores, pictures that are
turned and stretched in the model, dilated convolutions and resizing, a search's convolutions by the hundred.

Made as the families are, for benchmarks/fit.py too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.fit_families import Batch, Family, application, images

GPT2_WORDS, GPT2_LENGTH = 50_304, 1_024
BERT_WORDS, BERT_LENGTH = 30_522, 256
DROPOUT = 0.1
SIDE, CLASSES = 512, 21  # of DeepLab's pictures


def _next_words(random: np.random.Generator, samples: int) -> Batch:
    tokens = random.integers(0, GPT2_WORDS, (samples, GPT2_LENGTH + 1), np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def _hidden_words(random: np.random.Generator, samples: int) -> Any:
    """Sentences of unlike lengths with a weight of 1 on the seventh part of the words that are to be found."""
    words = random.integers(1, BERT_WORDS, (samples, BERT_LENGTH), np.int32)
    within = np.arange(BERT_LENGTH) < random.integers(BERT_LENGTH // 2, BERT_LENGTH + 1, samples)[:, None]
    sought = within & (random.random(words.shape) < 0.15)
    return np.where(within, words, 0).astype(np.int32), words, sought.astype(np.float32)


def _scenes(random: np.random.Generator, samples: int) -> Batch:
    x = random.integers(0, 256, (samples, SIDE, SIDE, 3), np.uint8)
    return x, random.integers(0, CLASSES, (samples, SIDE, SIDE), np.int32)


def _embedded(tokens: Any, words: int, length: int, width: int) -> Any:
    import keras
    from keras import layers as parts

    places = parts.Embedding(length, width)(keras.ops.arange(length)[None])
    return parts.Embedding(words, width)(tokens) + places


def gpt2_medium(dropout: float = DROPOUT, scores: float = DROPOUT) -> Any:
    """24 layers x 1 024, 16 heads, normalised before each part; the head in float32. scores: dropout of attention's."""
    import keras
    from keras import layers as parts

    width = 1_024
    tokens = keras.Input((GPT2_LENGTH,), dtype="int32")
    x = parts.Dropout(dropout)(_embedded(tokens, GPT2_WORDS, GPT2_LENGTH, width))
    for _ in range(24):
        y = parts.LayerNormalization(epsilon=1e-5)(x)
        y = parts.MultiHeadAttention(16, width // 16, dropout=scores)(y, y, use_causal_mask=True)
        x = x + parts.Dropout(dropout)(y)
        y = parts.Dense(4 * width, activation="gelu")(parts.LayerNormalization(epsilon=1e-5)(x))
        x = x + parts.Dropout(dropout)(parts.Dense(width)(y))
    x = parts.LayerNormalization(epsilon=1e-5)(x)
    return keras.Model(tokens, parts.Dense(GPT2_WORDS, dtype="float32")(x), name="gpt2_medium")


def bert_base(dropout: float = DROPOUT, scores: float = DROPOUT) -> Any:
    """12 layers x 768, 12 heads, normalised after each part; padding is masked, the head in float32."""
    import keras
    from keras import layers as parts

    width = 768
    tokens = keras.Input((BERT_LENGTH,), dtype="int32")
    mask = keras.ops.expand_dims(keras.ops.not_equal(tokens, 0), 1)
    x = parts.LayerNormalization(epsilon=1e-12)(_embedded(tokens, BERT_WORDS, BERT_LENGTH, width))
    x = parts.Dropout(dropout)(x)
    for _ in range(12):
        y = parts.MultiHeadAttention(12, width // 12, dropout=scores)(x, x, attention_mask=mask)
        x = parts.LayerNormalization(epsilon=1e-12)(x + parts.Dropout(dropout)(y))
        y = parts.Dense(width)(parts.Dense(4 * width, activation="gelu")(x))
        x = parts.LayerNormalization(epsilon=1e-12)(x + parts.Dropout(dropout)(y))
    x = parts.LayerNormalization(epsilon=1e-12)(parts.Dense(width, activation="gelu")(x))
    return keras.Model(tokens, parts.Dense(BERT_WORDS, dtype="float32")(x), name="bert_base")


def resnet50_augmented() -> Any:
    """A ResNet-50 whose pictures are flipped, turned, stretched and of other contrast in the model itself."""
    import keras
    from keras import layers as parts

    x = inputs = keras.Input((224, 224, 3), dtype="uint8")
    for layer in (
        parts.RandomFlip("horizontal"),
        parts.RandomRotation(0.1),
        parts.RandomZoom(0.2),
        parts.RandomContrast(0.2),
        parts.Rescaling(1 / 127.5, offset=-1.0),
    ):
        x = layer(x)
    body = keras.applications.ResNet50(include_top=False, weights=None, input_shape=(224, 224, 3), pooling="avg")
    return keras.Model(inputs, parts.Dense(1000, dtype="float32")(body(x)), name="resnet50_augmented")


def deeplab() -> Any:
    """DeepLabV3+ over a ResNet-50: a pyramid of dilations 1, 6, 12 and 18 over 32 x 32, bilinear enlarging."""
    import keras
    from keras import layers as parts

    def seen(x: Any, filters: int = 256, size: int = 3, dilation: int = 1) -> Any:
        x = parts.Conv2D(filters, size, padding="same", dilation_rate=dilation, use_bias=False)(x)
        return parts.Activation("relu")(parts.BatchNormalization()(x))

    inputs = keras.Input((SIDE, SIDE, 3), dtype="uint8")
    scaled = parts.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    body = keras.applications.ResNet50(include_top=False, weights=None, input_shape=(SIDE, SIDE, 3))
    taken = [body.get_layer(name).output for name in ("conv4_block6_2_relu", "conv2_block3_2_relu")]
    deep, near = keras.Model(body.input, taken)(scaled)
    whole = parts.AveragePooling2D((deep.shape[1], deep.shape[2]))(deep)
    whole = parts.UpSampling2D((deep.shape[1], deep.shape[2]), interpolation="bilinear")(seen(whole, size=1))
    pyramid = [seen(deep, size=1), *(seen(deep, dilation=dilation) for dilation in (6, 12, 18))]
    x = seen(parts.Concatenate()([whole, *pyramid]), size=1)
    x = parts.UpSampling2D(4, interpolation="bilinear")(x)
    x = seen(seen(parts.Concatenate()([x, seen(near, 48, 1)])))
    x = parts.UpSampling2D(4, interpolation="bilinear")(x)
    return keras.Model(inputs, parts.Conv2D(CLASSES, 1, dtype="float32")(x), name="deeplab")


TODAY = {
    "gpt2_medium": Family(gpt2_medium, _next_words, 8),
    "gpt2_medium_no_scores": Family(lambda: gpt2_medium(scores=0.0), _next_words, 8),
    "gpt2_medium_no_dropout": Family(lambda: gpt2_medium(0.0, 0.0), _next_words, 8),
    "bert_base": Family(bert_base, _hidden_words, 64),
    "bert_base_no_dropout": Family(lambda: bert_base(0.0, 0.0), _hidden_words, 64),
    "resnet50_augmented": Family(resnet50_augmented, images, 128, optimizer="sgd"),
    "deeplab": Family(deeplab, _scenes, 16),
    "nasnet_mobile": Family(lambda: application("NASNetMobile"), images, 128, optimizer="sgd"),
    "efficientnet_b4": Family(lambda: application("EfficientNetB4"), images, 128, optimizer="sgd"),
    "inception_resnet": Family(lambda: application("InceptionResNetV2"), images, 128, optimizer="sgd"),
}
