"""Dense networks: the smallest, a small one, and one of 41 million parameters that is nearly all gradient traffic."""

from __future__ import annotations

from typing import Any

import keras

from . import Spec


def dense2(x: Any, spec: Spec) -> Any:
    """Nothing before the last layer: with it `Dense(2)`, the smallest network there is."""
    return x


def mlp(x: Any, spec: Spec) -> Any:
    """256-128."""
    for units in (256, 128):
        x = keras.layers.Dense(units, activation="relu")(x)
    return x


def dense41m(x: Any, spec: Spec) -> Any:
    """8000-4000-2000-500-300-1: 41,157,101 parameters, and some 2 flops per byte of gradient and sample."""
    for units in (4000, 2000, 500, 300):
        x = keras.layers.Dense(units, activation="relu")(x)
    return x
