"""Image classifiers: a small network for 32x32 images, and three networks common in the scaling literature.

Their layers belong to the model itself, not to a nested model, so that a strategy can cut the model between any two.
"""

from __future__ import annotations

from typing import Any

import keras

from . import Spec


def cnn_cifar(x: Any, spec: Spec) -> Any:
    """Three pairs of 3x3 convolutions with batch normalisation and dropout, like VGG at the size of CIFAR images."""
    for filters, dropout in ((32, 0.2), (64, 0.3), (128, 0.4)):
        for _ in range(2):
            x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = keras.layers.BatchNormalization()(x)
            x = keras.layers.Activation("relu")(x)
        x = keras.layers.MaxPooling2D()(x)
        x = keras.layers.Dropout(dropout)(x)
    return keras.layers.Flatten()(x)


def resnet50(x: Any, spec: Spec) -> Any:
    """ResNet-50 as in keras.applications (He et al., 2015), random weights."""
    return keras.applications.ResNet50(include_top=False, weights=None, input_tensor=x, pooling="avg").output


def inception3(x: Any, spec: Spec) -> Any:
    """Inception v3 as in keras.applications (Szegedy et al., 2015), random weights."""
    return keras.applications.InceptionV3(include_top=False, weights=None, input_tensor=x, pooling="avg").output


def vgg16(x: Any, spec: Spec) -> Any:
    """VGG16 with its two wide dense layers, which have 120 million of its 138 million parameters."""
    body = keras.applications.VGG16(include_top=False, weights=None, input_tensor=x)
    x = keras.layers.Flatten()(body.output)
    for _ in range(2):
        x = keras.layers.Dense(4096, activation="relu")(x)
    return x
