"""Dense networks: the smallest one, a small one, and one with 41 million parameters whose steps are mostly gradient
exchange."""

from __future__ import annotations

from typing import Any

import keras

from . import Spec


def dense2(x: Any, spec: Spec) -> Any:
    """No layer of its own: with the logits, which `build` adds, it is `Dense(2)`, the smallest possible network."""
    return x


def mlp(x: Any, spec: Spec) -> Any:
    """Two hidden layers, 256 and 128 units."""
    for units in (256, 128):
        x = keras.layers.Dense(units, activation="relu")(x)
    return x


def dense41m(x: Any, spec: Spec) -> Any:
    """Layers of 4000-2000-500-300 units on 8000 inputs: 41,157,101 parameters, for each sample some 2 flops per byte of
    gradient."""
    for units in (4000, 2000, 500, 300):
        x = keras.layers.Dense(units, activation="relu")(x)
    return x
