"""The networks of the models by name: each takes the input tensor and returns the features for the logits.

Their layers belong to the model itself, not to a nested model, so that a strategy can cut the model between any two.
"""

from __future__ import annotations

from typing import Any

import keras

UNITS = 256  # units of a recurrent layer
WIDTH, HEADS, BLOCKS = 768, 12, 12  # sizes of the smallest GPT-2 (Radford et al. 2019)


def dense2(x: Any) -> Any:
    """No layer of its own: with the logits, which `build` adds, it is `Dense(2)`, the smallest possible network."""
    return x


def mlp(x: Any) -> Any:
    """Two hidden layers, 256 and 128 units."""
    for units in (256, 128):
        x = keras.layers.Dense(units, activation="relu")(x)
    return x


def dense41m(x: Any) -> Any:
    """Layers of 4000-2000-500-300 units on 8000 inputs: 41,157,101 parameters, for each sample some 2 flops per byte of
    gradient, so that a step is mostly gradient exchange."""
    for units in (4000, 2000, 500, 300):
        x = keras.layers.Dense(units, activation="relu")(x)
    return x


def cnn_cifar(x: Any) -> Any:
    """Three pairs of 3x3 convolutions with batch normalisation and dropout, like VGG at the size of CIFAR images."""
    for filters, dropout in ((32, 0.2), (64, 0.3), (128, 0.4)):
        for _ in range(2):
            x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = keras.layers.BatchNormalization()(x)
            x = keras.layers.Activation("relu")(x)
        x = keras.layers.MaxPooling2D()(x)
        x = keras.layers.Dropout(dropout)(x)
    return keras.layers.Flatten()(x)


def resnet50(x: Any) -> Any:
    """ResNet-50 as in keras.applications (He et al., 2015), random weights."""
    return keras.applications.ResNet50(include_top=False, weights=None, input_tensor=x, pooling="avg").output


def inception3(x: Any) -> Any:
    """Inception v3 as in keras.applications (Szegedy et al., 2015), random weights."""
    return keras.applications.InceptionV3(include_top=False, weights=None, input_tensor=x, pooling="avg").output


def vgg16(x: Any) -> Any:
    """VGG16 with its two wide dense layers, which have 120 million of its 138 million parameters."""
    body = keras.applications.VGG16(include_top=False, weights=None, input_tensor=x)
    x = keras.layers.Flatten()(body.output)
    for _ in range(2):
        x = keras.layers.Dense(4096, activation="relu")(x)
    return x


def lstm(x: Any) -> Any:
    """An LSTM, which cuDNN runs on a GPU."""
    return keras.layers.LSTM(UNITS, use_cudnn="auto")(x)


def lstm_generic(x: Any) -> Any:
    """An LSTM with Keras's generic cell, a loop of small kernels, on every device."""
    return keras.layers.LSTM(UNITS, use_cudnn=False)(x)


def gru(x: Any) -> Any:
    """A GRU, which cuDNN runs on a GPU."""
    return keras.layers.GRU(UNITS, use_cudnn="auto")(x)


def gru_generic(x: Any) -> Any:
    """A GRU with Keras's generic cell, a loop of small kernels, on every device."""
    return keras.layers.GRU(UNITS, use_cudnn=False)(x)


def transformer(x: Any) -> Any:
    """12 pre-norm blocks on sequences of vectors, each with causal attention and two dense layers. The mean over
    positions is classified."""
    x = keras.layers.Dense(WIDTH)(x)
    for _ in range(BLOCKS):
        normal = keras.layers.LayerNormalization()(x)
        seen = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normal, normal, use_causal_mask=True)
        x = keras.layers.Add()([x, seen])
        normal = keras.layers.LayerNormalization()(x)
        wide = keras.layers.Dense(4 * WIDTH, activation="gelu")(normal)
        x = keras.layers.Add()([x, keras.layers.Dense(WIDTH)(wide)])
    return keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(x))
