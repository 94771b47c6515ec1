"""Rules about input: where the samples are kept, and how tf.data makes batches of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..feeds.sources import scaled
from ..models import MODELS, Spec, build, compile_model
from .ways import Subject, Way, Ways, stepping

SAMPLES = 1024  # the data set on the device has at least this many samples
PICTURES, SIDE, INPUT_SIDE, BATCH = 512, 96, 32, 64
AUTOTUNE = tf.data.AUTOTUNE


def resident_data(on: Subject) -> Ways:
    """The two ways for a small data set: fed from the host, or kept on the device."""
    spec, batch = MODELS[on.model], on.batch
    count = max(SAMPLES, 4 * batch)
    made = build(on.model)
    compile_model(made, spec)
    generator = np.random.default_rng(0)
    x = generator.random((count, *spec.input_shape), dtype=np.float32)
    y = generator.integers(0, max(2, spec.classes), count)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).repeat().prefetch(AUTOTUNE)
    with tf.device(on.device):
        held = tf.constant(x), tf.constant(y)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def cut(first: Any) -> Any:
        pair = held[0][first : first + batch], held[1][first : first + batch]
        return made.train_step(tuple(tf.ensure_shape(one, (batch, *one.shape[1:])) for one in pair))["loss"]

    from_device = stepping(lambda number: cut(tf.constant(number % (count // batch) * batch)), batch)
    return Ways(consuming(made, iter(data), batch), from_device, f"{on.model}, {batch} samples, {count} in all")


def consuming(model: Any, batches: Iterator[Any], batch: int) -> Way:
    """A way that trains on the iterator's batches."""

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        return model.train_step((x, y))["loss"]

    return stepping(lambda _: step(*next(batches)), batch)


def pictures() -> tuple[Any, Any]:
    """JPEG files and labels; the pictures have few details, so that the files are small."""
    generator = np.random.default_rng(0)
    rough = generator.integers(0, 256, (PICTURES, SIDE // 8, SIDE // 8, 3)).astype(np.uint8)
    files = [tf.io.encode_jpeg(np.kron(one, np.ones((8, 8, 1), np.uint8))).numpy() for one in rough]
    return np.array(files, object), generator.integers(0, 10, PICTURES)


def decode(file: Any, label: Any) -> tuple[Any, Any]:
    picture = tf.io.decode_jpeg(file, channels=3)
    picture = tf.image.resize(tf.ensure_shape(picture, (SIDE, SIDE, 3)), (INPUT_SIDE, INPUT_SIDE))
    return picture / 255.0, label


def scale(x: Any, y: Any) -> tuple[Any, Any]:
    return scaled(x, "float32"), y


def trained(data: Any) -> Way:
    """A way that trains a small dense model on batches of pictures."""
    flat = keras.Sequential(
        [
            keras.Input((INPUT_SIDE, INPUT_SIDE, 3)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    compile_model(flat, Spec((INPUT_SIDE, INPUT_SIDE, 3), 10))
    return consuming(flat, iter(data), BATCH)


def files() -> Any:
    return tf.data.Dataset.from_tensor_slices(pictures())


WHAT = f"JPEG files of {SIDE} x {SIDE} decoded, {BATCH} samples, into a dense layer of 128"


def cache(on: Subject) -> Ways:
    decoded = files().map(decode, num_parallel_calls=AUTOTUNE)
    cached = trained(decoded.cache().repeat().batch(BATCH).prefetch(AUTOTUNE))
    cached(PICTURES // BATCH + 1)  # the first epoch fills the cache
    return Ways(trained(decoded.repeat().batch(BATCH).prefetch(AUTOTUNE)), cached, WHAT)


def prefetch(on: Subject) -> Ways:
    batches = files().map(decode, num_parallel_calls=AUTOTUNE).repeat().batch(BATCH)
    return Ways(trained(batches), trained(batches.prefetch(AUTOTUNE)), WHAT)


def parallel_map(on: Subject) -> Ways:
    def through(calls: int | None) -> Way:
        return trained(files().map(decode, num_parallel_calls=calls).repeat().batch(BATCH).prefetch(AUTOTUNE))

    return Ways(through(None), through(AUTOTUNE), WHAT)


def batch_before_map(on: Subject) -> Ways:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (PICTURES, INPUT_SIDE, INPUT_SIDE, 3)).astype(np.uint8)
    raw = tf.data.Dataset.from_tensor_slices((x, generator.integers(0, 10, PICTURES))).repeat()
    return Ways(
        trained(raw.map(scale, num_parallel_calls=AUTOTUNE).batch(BATCH).prefetch(AUTOTUNE)),
        trained(raw.batch(BATCH).map(scale, num_parallel_calls=AUTOTUNE).prefetch(AUTOTUNE)),
        f"uint8 samples scaled, {BATCH} samples, into a dense layer of 128",
    )
