"""What all scripts of this folder train: a convolutional network that keeps a GPU busy for some 20 ms a step.

RINGSCOPE_SMALL=1 in the environment makes it one that a CPU trains, to try the scripts where there is no GPU.
"""

import os

import keras
import numpy as np
import tensorflow as tf

SMALL = os.environ.get("RINGSCOPE_SMALL") == "1"
BATCH, PIXELS, WIDTH, DEPTH = (16, 8, 4, 2) if SMALL else (256, 32, 256, 8)
STEPS = 480 if SMALL else 120  # of all ranks together; a busy CPU's are alike late
SLOW_S = 0.02 if SMALL else 0.06  # longer than a step, so that no GPU has work for as long
if not SMALL:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")


def network(width: int = WIDTH, depth: int = DEPTH) -> keras.Model:
    layers = [keras.layers.Rescaling(1 / 255)]
    for _ in range(depth):
        layers += [keras.layers.Conv2D(width, 3, padding="same", activation="relu")]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, dtype="float32")])


def images(batch: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.integers(0, 255, (batch, PIXELS, PIXELS, 3), np.uint8), draw.integers(0, 10, batch)


def dataset(batch: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(images(batch)).cache().repeat().prefetch(4)


def loss() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
