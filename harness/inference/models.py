"""The model for inference, one of ringscope's by name or a `.keras` file, as one traced function on a device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiles.ground.errors import RingscopeError

from ..training import models
from . import is_file

Array = NDArray[Any]
SAMPLES = 8  # different samples, so that a swapped answer is noticed


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on a device, and the shape and type of its input."""

    model: Any
    answer: Callable[[Any], Any]  # a batch of any size, as tensor or array -> the predictions as a tensor
    input_shape: tuple[int, ...]
    input_dtype: str
    parameters: int


def gpus() -> list[Any]:
    """The GPUs that TensorFlow sees, set to allocate memory as needed."""
    import tensorflow as tf

    found: list[Any] = tf.config.list_physical_devices("GPU")
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
    return found


def load(name: str, place: str = "/CPU:0") -> Loaded:
    """Load a model by name or path, with its weights on the device `place`. Raises RingscopeError."""
    import tensorflow as tf

    with tf.device(place):
        model = _read(name) if is_file(name) else models.build(name)
    if len(model.inputs) != 1 or None in model.inputs[0].shape[1:]:
        raise RingscopeError(
            f"{name}: has several inputs, or one without a fixed size; name a model with one input of a fixed size"
        )
    (wanted,) = model.inputs
    signature = [tf.TensorSpec(wanted.shape, wanted.dtype)]

    @tf.function(input_signature=signature, autograph=False)
    def answer(x: Any) -> Any:
        with tf.device(place):
            return model(x, training=False)

    return Loaded(model, answer, tuple(wanted.shape[1:]), str(wanted.dtype), int(model.count_params()))


def _read(path: str) -> Any:
    import keras

    try:
        return keras.models.load_model(path, compile=False)
    except (OSError, ValueError, TypeError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise RingscopeError(
            f"{path}: Keras cannot load it: {said[0]}; save it again with the Keras that is installed here"
        ) from error


def samples(shape: tuple[int, ...], dtype: str, count: int, seed: int = 0) -> Array:
    """`count` random samples; equal seeds give equal samples."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(np.dtype(dtype), np.integer):
        return rng.integers(0, 2, (count, *shape)).astype(dtype)
    return rng.random((count, *shape), np.float32).astype(dtype)


def instances(shape: tuple[int, ...], dtype: str) -> str:
    """SAMPLES samples as the JSON body of a request."""
    return json.dumps({"instances": samples(shape, dtype, SAMPLES).tolist()})


def named(name: str) -> str:
    """The model's name in a report: its own, or its file's."""
    return Path(name).stem if is_file(name) else name
