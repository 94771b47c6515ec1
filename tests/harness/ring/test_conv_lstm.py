"""ConvLSTM layers as one loop each way, in XLA, against Keras's own loop and against 64-bit arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from harness.ring.forms import conv_lstm, turns
from harness.ring.forms import layers as xla

BATCH, STEPS, PLACES, CHANNELS, FILTERS = 2, 7, 6, 3, 4  # two turns of the loop of three steps each, and a rest
Builder = Callable[[Any], list[Any]]


def _frames(rank: int = 2, *, begun: bool = False, **options: Any) -> Builder:
    """A layer over one, two or three axes; what it returns."""
    kind = {1: layers.ConvLSTM1D, 2: layers.ConvLSTM2D, 3: layers.ConvLSTM3D}[rank]

    def build(given: Any) -> list[Any]:
        state = [given["h"], given["c"]] if begun else None
        found = kind(FILTERS, 3, **{"padding": "same"} | options)(given[f"x{rank}"], initial_state=state)
        return list(found) if isinstance(found, list | tuple) else [found]

    return build


def _stacked(given: Any) -> list[Any]:
    x = layers.ConvLSTM2D(FILTERS, 3, return_sequences=True, activation="relu")(given["x2"])
    return [layers.Bidirectional(layers.ConvLSTM2D(2, (3, 1), padding="same"))(x)]


SHORT: dict[str, Builder] = {
    "last output": _frames(),
    "begun from states, which are returned": _frames(begun=True, return_sequences=True, return_state=True),
    "strides": _frames(strides=2, padding="valid", activation="relu", return_sequences=True),
    "stacked, both ways": _stacked,
}
LONG: dict[str, Builder] = {
    "one axis, backwards": _frames(1, go_backwards=True, return_sequences=True, return_state=True),
    "three axes, no bias": _frames(3, use_bias=False),
    "dilation": _frames(dilation_rate=2, padding="valid", recurrent_activation="hard_sigmoid"),
    "activated by another": _frames(activation="elu", recurrent_activation="softsign", unit_forget_bias=False),
}
CASES = SHORT | LONG
SHAPES = {f"x{rank}": (BATCH, STEPS, *[PLACES] * rank, CHANNELS) for rank in (1, 2, 3)}
SHAPES |= {name: (BATCH, PLACES, PLACES, FILTERS) for name in ("h", "c")}


def _narrow(x: np.ndarray) -> np.ndarray:
    """As bfloat16 has them, so that no type that a model computes in rounds what it is given."""
    return np.asarray(tf.cast(tf.cast(tf.constant(x), "bfloat16"), "float64"))


def _given(kind: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: tf.constant(_narrow(random.normal(size=shape)), kind) for name, shape in SHAPES.items()}


def _model(build: Builder, dtype: str = "float32") -> Any:
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(dtype)
    try:
        given = {name: keras.Input(shape[1:], BATCH, name=name) for name, shape in SHAPES.items()}
        model = keras.Model(given, build(given))
    finally:
        keras.config.set_dtype_policy("float32")
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(_narrow(random.normal(0, 0.2, variable.shape)))
    return model


def _step(model: Any, *, form: bool) -> Callable[[Any], tuple[list[Any], list[Any]]]:
    """(outputs, gradients by frames, states and weights) of a sum in which each number has a weight of its own."""

    def step(given: Any) -> tuple[list[Any], list[Any]]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            with xla.forms(model) if form else nullcontext():
                outputs = tf.nest.flatten(model(given, training=True))
            wide = [tf.reshape(tf.cast(each, tf.float64), [-1]) for each in outputs]
            loss = sum(tf.reduce_sum(each * np.sin(1 + np.arange(each.shape[0]))) for each in wide)
        sources = [*given.values(), *model.trainable_variables]
        return outputs, [each for each in tape.gradient(loss, sources) if each is not None]

    return step


def _run(model: Any, *, form: bool) -> list[np.ndarray]:
    """Outputs, then gradients; Keras's own not compiled."""
    step = tf.function(_step(model, form=form), jit_compile=form, autograph=False)
    outputs, gradients = step(_given(model.layers[0].dtype))
    return [np.asarray(tf.cast(each, tf.float64)) for each in [*outputs, *gradients]]


@pytest.fixture(autouse=True)
def _three_steps_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "CHUNK", 3)


@pytest.mark.parametrize("case", [*SHORT, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)])
def test_outputs_and_gradients_are_those_of_kerass_own_loop(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(CASES[case])
    plain = _run(model, form=False)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("Keras's own loop was taken")

    monkeypatch.setattr(layers.RNN, "inner_loop", refused)
    form = _run(model, form=True)
    assert len(form) == len(plain) > len(model.outputs) + len(model.trainable_variables)
    for own, keras_own in zip(form, plain, strict=True):
        assert np.abs(keras_own).max() > 0
        np.testing.assert_allclose(own, keras_own, rtol=1e-5, atol=1e-5 * np.abs(keras_own).max())


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", pytest.param("float64", marks=pytest.mark.long)])
def test_in_every_type_it_is_as_near_to_64_bit_arithmetic_as_kerass_own_loop(dtype: str) -> None:
    build = CASES["begun from states, which are returned"]
    true = _run(_model(build, "float64"), form=False)
    narrow = _model(build, dtype)
    form, plain = _run(narrow, form=True), _run(narrow, form=False)
    for own, keras_own, right in zip(form, plain, true, strict=True):
        norm = np.linalg.norm(right)
        distance, kerass = np.linalg.norm(own - right) / norm, np.linalg.norm(keras_own - right) / norm
        assert distance <= kerass or distance < 1e-14


def test_a_step_convolves_once_and_once_on_its_way_back() -> None:
    model = _model(CASES["last output"])
    given = _given("float32")

    def convolutions(*, form: bool) -> int:
        step = tf.function(_step(model, form=form), jit_compile=True, autograph=False)
        return len(re.findall(r" convolution\(", step.experimental_get_compiler_ir(given)(stage="optimized_hlo")))

    # Of the inputs of all steps, their gradient and the kernel's; of a turn's three steps and the one that is left, and
    # back, where nobody asks for the gradient of the first state; the recurrent kernel's gradient.
    assert convolutions(form=True) == 3 + (3 + 1) + 3 + 1
    assert convolutions(form=False) == 8 * 3


class OwnCell(layers.ConvLSTM2D):  # type: ignore[misc]
    def inner_loop(self, *given: Any, **options: Any) -> Any:
        return super().inner_loop(*given, **options)


@pytest.mark.parametrize(
    ("layer", "fits"),
    [
        (lambda: layers.ConvLSTM2D(4, 3, strides=2, go_backwards=True), True),
        (lambda: layers.ConvLSTM2D(4, 3, activation="relu", use_bias=False), True),
        (lambda: layers.ConvLSTM2D(4, 3, activation=layers.PReLU()), False),
        (lambda: layers.ConvLSTM2D(4, 3, dropout=0.1), False),
        (lambda: layers.ConvLSTM2D(4, 3, recurrent_dropout=0.1), False),
        (lambda: layers.ConvLSTM2D(4, 3, stateful=True), False),
        (lambda: layers.ConvLSTM2D(4, 3, data_format="channels_first"), False),
        (lambda: OwnCell(4, 3), False),
        (lambda: layers.TimeDistributed(layers.Conv2D(4, 3)), False),
    ],
)
def test_other_layers_stay_kerass_own(layer: Callable[[], Any], fits: bool) -> None:
    made = layer()
    model = keras.Sequential([keras.Input((STEPS, PLACES, PLACES, CHANNELS), 2), made])
    with xla.forms(model):
        assert ("inner_loop" in made.__dict__) == conv_lstm.fits(made) == fits
    assert "inner_loop" not in made.__dict__


def test_a_masked_sequence_is_left_to_kerass_own_loop() -> None:
    inputs = keras.Input((STEPS, PLACES, PLACES, CHANNELS), BATCH)
    masked = layers.Masking()(keras.layers.Reshape((STEPS, -1))(inputs))
    frames = layers.Reshape((STEPS, PLACES, PLACES, CHANNELS))(masked)
    seen = keras.Input((STEPS,), BATCH, dtype="bool")
    model = keras.Model([inputs, seen], layers.ConvLSTM2D(FILTERS, 3)(frames, mask=seen))
    x = np.random.default_rng(0).normal(size=inputs.shape).astype("float32")
    mask = np.arange(STEPS) < np.array([[3], [7]])
    plain = model([x, mask])
    with xla.forms(model):
        form = tf.function(lambda: model([x, mask]), jit_compile=True, autograph=False)()
    np.testing.assert_allclose(form, plain, rtol=1e-5, atol=1e-6)
