"""Rules about shapes and types: both ways run one step on a batch that stays on the device. On a GPU XLA compiles the
step, as `ring` does."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..models import MODELS, build, compile_model
from .own_process import in_own_process
from .ways import Subject, Way, Ways, stepping

WIDTH, LAYERS, WIDE_BATCH = 1024, 3, 64


def on_one_batch(model: Any, batch: int, spec_shape: tuple[int, ...], classes: int, *, compiled: bool) -> Way:
    """A way that trains a compiled model on one batch that stays on the device. compiled: True if XLA compiles the
    step."""
    generator = np.random.default_rng(0)
    x = tf.constant(generator.random((batch, *spec_shape), dtype=np.float32))
    y = tf.constant(generator.integers(0, max(2, classes), batch))
    if compiled:
        model.train_step((x[:1], y[:1]))  # one eager step makes the variables, because code compiled by XLA cannot

    @tf.function(jit_compile=compiled)  # type: ignore[untyped-decorator]
    def step() -> Any:
        return model.train_step((x, y))["loss"]

    return stepping(lambda _: step(), batch)


def of_model(on: Subject, precision: str) -> Way:
    model = build(on.model, precision=precision)
    spec = MODELS[on.model]
    compile_model(model, spec)
    return on_one_batch(model, on.batch, spec.input_shape, spec.classes, compiled=on.gpu)


def plain(gpu: bool) -> str:
    """The precision for a rule about shapes: on a GPU the one that tensor cores need."""
    return "mixed_bfloat16" if gpu else "float32"


def batch_multiple_of_8(on: Subject) -> Ways:
    batch = -(-on.batch // 8) * 8
    made = build(on.model, precision=plain(on.gpu))
    spec = MODELS[on.model]
    compile_model(made, spec)
    return Ways(
        on_one_batch(made, batch + 1, spec.input_shape, spec.classes, compiled=on.gpu),
        on_one_batch(made, batch, spec.input_shape, spec.classes, compiled=on.gpu),
        f"{on.model}, {batch + 1} and {batch} samples, {plain(on.gpu)}{on.how}",
    )


def features_multiple_of_8(on: Subject) -> Ways:
    batch = WIDE_BATCH * (16 if on.gpu else 1)

    def wide(units: int) -> Way:
        keras.mixed_precision.set_dtype_policy(plain(on.gpu))
        layers = [keras.layers.Dense(units, activation="relu") for _ in range(LAYERS)]
        made = keras.Sequential([keras.Input((units,)), *layers, keras.layers.Dense(10, dtype="float32")])
        compile_model(made, MODELS["mlp"])
        return on_one_batch(made, batch, (units,), 10, compiled=on.gpu)

    return Ways(wide(WIDTH - 1), wide(WIDTH), f"{LAYERS} dense layers, {batch} samples, {plain(on.gpu)}{on.how}")


def bfloat16(on: Subject) -> Ways:
    return _precision(on, "mixed_bfloat16")


def float16(on: Subject) -> Ways:
    return _precision(on, "mixed_float16")


def _precision(on: Subject, precision: str) -> Ways:
    return Ways(of_model(on, "float32"), of_model(on, precision), f"{on.model}, {on.batch} samples{on.how}")


def tf32(on: Subject) -> Ways:
    """The two ways of TF32. The way without TF32 runs in a separate process, because cuDNN keeps its choice for a
    convolution even if TF32 is switched off later."""
    against = in_own_process(__name__, "without_tf32", on, {"NVIDIA_TF32_OVERRIDE": "0"})
    return Ways(against, of_model(on, "float32"), f"{on.model}, {on.batch} samples, float32{on.how}")


def without_tf32(on: Subject) -> Way:
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return of_model(on, "float32")
