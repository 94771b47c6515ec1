"""A transformer of GPT-2's smallest size (Radford et al. 2019), on sequences of vectors."""

from __future__ import annotations

from typing import Any

import keras

from . import Spec

WIDTH, HEADS, BLOCKS = 768, 12, 12


def transformer(x: Any, spec: Spec) -> Any:
    """12 pre-norm blocks, each with causal attention and two dense layers. The mean over positions is classified."""
    x = keras.layers.Dense(WIDTH)(x)
    for _ in range(BLOCKS):
        normal = keras.layers.LayerNormalization()(x)
        seen = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normal, normal, use_causal_mask=True)
        x = keras.layers.Add()([x, seen])
        normal = keras.layers.LayerNormalization()(x)
        wide = keras.layers.Dense(4 * WIDTH, activation="gelu")(normal)
        x = keras.layers.Add()([x, keras.layers.Dense(WIDTH)(wide)])
    return keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(x))
