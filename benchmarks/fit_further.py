"""Models that people train besides benchmarks/fit_families.py's: of other layers, and of other ways to write them.

    horovodrun -np 2 python -m benchmarks.peers.fit_keras --way ring --model diffusion

Made as the families are, for `benchmarks.peers.fit_keras` alone: PyTorch has no likes of them here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.fit_families import Batch, Family, application, images, scaled

WORDS, SENTENCE = 16_000, 128
SAMPLES_OF_SOUND, LEVELS = 2_048, 256


def _translations(random: np.random.Generator, samples: int) -> Batch:
    told, said = random.integers(1, WORDS, (2, samples, SENTENCE + 1), np.int32)
    for sentence in (told, said):
        lengths = random.integers(SENTENCE // 2, SENTENCE + 1, samples)
        sentence[np.arange(SENTENCE + 1) >= lengths[:, None]] = 0
    return {"source": told[:, :-1].copy(), "target": said[:, :-1].copy()}, said[:, 1:].copy()


def _sounds(random: np.random.Generator, samples: int) -> Batch:
    levels = random.integers(0, LEVELS, (samples, SAMPLES_OF_SOUND + 1), np.int32)
    return levels[:, :-1].copy(), levels[:, 1:].copy()


def _volumes(random: np.random.Generator, samples: int) -> Batch:
    x = random.normal(size=(samples, 64, 64, 64, 1)).astype(np.float32)
    return x, random.integers(0, 4, (samples, 64, 64, 64), np.int32)


def _small_images(random: np.random.Generator, samples: int) -> Batch:
    x = random.integers(0, 256, (samples, 64, 64, 3), np.uint8)
    return x, np.zeros(samples, np.int32)


def _reviews(random: np.random.Generator, samples: int) -> Batch:
    words = random.integers(1, WORDS, (samples, 200), np.int32)
    words[np.arange(200) >= random.integers(20, 201, samples)[:, None]] = 0
    return words, random.integers(0, 2, samples, np.int32)


def translator() -> Any:
    """An encoder and a decoder of 6 layers x 512 each, which looks at the encoder's; masks by Keras's `mask_zero`."""
    import keras
    from keras import layers as parts

    def added(x: Any, y: Any) -> Any:
        return parts.LayerNormalization()(parts.Add()([x, parts.Dropout(0.1)(y)]))

    def thought(x: Any) -> Any:
        return added(x, parts.Dense(512)(parts.Dense(2048, activation="relu")(x)))

    def embedded(tokens: Any) -> Any:
        return parts.Embedding(WORDS, 512, mask_zero=True)(tokens)

    source, target = (keras.Input((SENTENCE,), dtype="int32", name=name) for name in ("source", "target"))
    x, y = embedded(source), embedded(target)
    for _ in range(6):
        x = thought(added(x, parts.MultiHeadAttention(8, 64)(x, x)))
    for _ in range(6):
        y = added(y, parts.MultiHeadAttention(8, 64)(y, y, use_causal_mask=True))
        y = thought(added(y, parts.MultiHeadAttention(8, 64)(y, x)))
    return keras.Model({"source": source, "target": target}, parts.Dense(WORDS)(y), name="translator")


def wavenet() -> Any:
    """Dilated causal convolutions with gates, and sums over all of them; 2 048 samples of sound."""
    import keras
    from keras import layers as parts

    levels = keras.Input((SAMPLES_OF_SOUND,), dtype="int32")
    x, skipped = parts.Embedding(LEVELS, 128)(levels), []
    for dilation in [2**i for i in range(9)] * 2:
        held = parts.Conv1D(128, 2, dilation_rate=dilation, padding="causal", activation="tanh")(x)
        gate = parts.Conv1D(128, 2, dilation_rate=dilation, padding="causal", activation="sigmoid")(x)
        y = parts.Multiply()([held, gate])
        skipped.append(parts.Conv1D(256, 1)(y))
        x = parts.Add()([x, parts.Conv1D(128, 1)(y)])
    y = parts.Conv1D(256, 1, activation="relu")(parts.Activation("relu")(parts.Add()(skipped)))
    return keras.Model(levels, parts.Conv1D(LEVELS, 1, dtype="float32")(y), name="wavenet")


def mixer() -> Any:
    """MLP-Mixer S/16: products over patches, and over channels."""
    import keras
    from keras import layers as parts

    inputs, x = scaled()
    x = parts.Reshape((196, 512))(parts.Conv2D(512, 16, strides=16)(x))
    for _ in range(8):
        y = parts.Permute((2, 1))(parts.LayerNormalization()(x))
        y = parts.Dense(196)(parts.Dense(256, activation="gelu")(y))
        x = parts.Add()([x, parts.Permute((2, 1))(y)])
        y = parts.LayerNormalization()(x)
        x = parts.Add()([x, parts.Dense(512)(parts.Dense(2048, activation="gelu")(y))])
    x = parts.GlobalAveragePooling1D()(parts.LayerNormalization()(x))
    return keras.Model(inputs, parts.Dense(1000, dtype="float32")(x), name="mixer")


def volumes() -> Any:
    """A U-Net over 64 x 64 x 64 voxels, 32 to 256 channels, group normalisation."""
    import keras
    from keras import layers as parts

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = parts.GroupNormalization(8)(parts.Conv3D(filters, 3, padding="same")(x))
            x = parts.LeakyReLU()(x)
        return x

    x = inputs = keras.Input((64, 64, 64, 1))
    kept = []
    for filters in (32, 64, 128):
        x = twice(x, filters)
        kept.append(x)
        x = parts.MaxPooling3D()(x)
    x = twice(x, 256)
    for filters in (128, 64, 32):
        x = twice(parts.Concatenate()([parts.UpSampling3D()(x), kept.pop()]), filters)
    return keras.Model(inputs, parts.Conv3D(4, 1, dtype="float32")(x), name="volumes")


def diffusion() -> Any:
    """A denoiser of 64 x 64 images that makes its own noise and its own loss, with attention at the narrowest."""
    import keras
    from keras import layers as parts
    from keras import ops

    def residual(x: Any, filters: int) -> Any:
        kept = x if x.shape[-1] == filters else parts.Conv2D(filters, 1)(x)
        for _ in range(2):
            x = parts.Activation("swish")(parts.GroupNormalization(8)(x))
            x = parts.Conv2D(filters, 3, padding="same")(x)
        return parts.Add()([x, kept])

    def attended(x: Any) -> Any:
        _, rows, columns, filters = x.shape
        y = parts.Reshape((rows * columns, filters))(parts.GroupNormalization(8)(x))
        y = parts.MultiHeadAttention(filters // 64, 64)(y, y)
        return parts.Add()([x, parts.Reshape((rows, columns, filters))(y)])

    noisy = keras.Input((64, 64, 4))
    x, kept = parts.Conv2D(64, 3, padding="same")(noisy), []
    for filters in (64, 128, 256):
        x = residual(residual(x, filters), filters)
        kept.append(x)
        x = parts.AveragePooling2D(2)(x)
    x = residual(attended(residual(x, 384)), 384)
    for filters in (256, 128, 64):
        x = parts.Concatenate()([parts.UpSampling2D(interpolation="bilinear")(x), kept.pop()])
        x = residual(residual(x, filters), filters)
    network = keras.Model(noisy, parts.Conv2D(3, 1, kernel_initializer="zeros", dtype="float32")(x))

    class Diffusion(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="diffusion")
            self.network, self.seeds = network, keras.random.SeedGenerator(0)

        def call(self, images: Any, training: bool = False) -> Any:
            images = ops.cast(images, "float32") / 127.5 - 1.0
            noise = keras.random.normal(ops.shape(images), seed=self.seeds)
            angle = keras.random.uniform((ops.shape(images)[0], 1, 1, 1), 0.05, 1.5, seed=self.seeds)
            noisy = ops.cos(angle) * images + ops.sin(angle) * noise
            level = ops.broadcast_to(angle, (*ops.shape(images)[:-1], 1))
            found = self.network(ops.concatenate([noisy, level], axis=-1), training=training)
            return ops.mean(ops.abs(ops.cast(found, "float32") - noise), axis=(1, 2, 3))

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            return ops.mean(y_pred)

    return Diffusion()


def reviews() -> Any:
    """Sentences read both ways by two layers of LSTM cells, which pass over what is masked."""
    import keras
    from keras import layers as parts

    words = keras.Input((200,), dtype="int32")
    x = parts.Embedding(WORDS, 128, mask_zero=True)(words)
    x = parts.Bidirectional(parts.LSTM(128, return_sequences=True))(x)
    x = parts.Dropout(0.3)(parts.Bidirectional(parts.LSTM(128))(x))
    return keras.Model(words, parts.Dense(2, dtype="float32")(x), name="reviews")


FURTHER = {
    "densenet121": Family(lambda: application("DenseNet121"), images, 128),
    "mobilenetv3": Family(lambda: application("MobileNetV3Large", include_preprocessing=False), images, 256),
    "xception": Family(lambda: application("Xception"), images, 128),
    "mixer": Family(mixer, images, 256),
    "translator": Family(translator, _translations, 64),
    "wavenet": Family(wavenet, _sounds, 32),
    "volumes": Family(volumes, _volumes, 8),
    "diffusion": Family(diffusion, _small_images, 64),
    "reviews": Family(reviews, _reviews, 256),
}
