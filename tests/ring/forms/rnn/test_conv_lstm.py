"""ConvLSTM layers as one loop each way, in XLA, against Keras's own loop and against 64-bit arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ringscope.ring.forms import layers as xla
from ringscope.ring.forms.rnn import conv_lstm, loop
from tests.ring import loops
from tests.ring.loops import Builder

BATCH, STEPS, PLACES, CHANNELS, FILTERS = 2, 7, 6, 3, 4  # two turns of the loop of three steps each, and a rest


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


FEW: dict[str, Builder] = {
    "begun from states, which are returned": _frames(begun=True, return_sequences=True, return_state=True),
}
MORE: dict[str, Builder] = {
    "last output": _frames(),
    "strides": _frames(strides=2, padding="valid", activation="relu", return_sequences=True),
}
ALL: dict[str, Builder] = {
    "stacked, both ways": _stacked,
    "one axis, backwards": _frames(1, go_backwards=True, return_sequences=True, return_state=True),
    "three axes, no bias": _frames(3, use_bias=False),
    "dilation": _frames(dilation_rate=2, padding="valid", recurrent_activation="hard_sigmoid"),
    "activated by another": _frames(activation="elu", recurrent_activation="softsign", unit_forget_bias=False),
}
CASES = FEW | MORE | ALL
SHAPES = {f"x{rank}": (BATCH, STEPS, *[PLACES] * rank, CHANNELS) for rank in (1, 2, 3)}
SHAPES |= {name: (BATCH, PLACES, PLACES, FILTERS) for name in ("h", "c")}


def _given() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape) for name, shape in SHAPES.items()}


def _model(build: Builder, dtype: str = "float32") -> Any:
    return loops.model_of(build, _given(), 0.2, dtype)


@pytest.fixture(autouse=True)
def _three_steps_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHUNK", 3)


@pytest.mark.parametrize(
    "case",
    [
        *FEW,
        *(pytest.param(case, marks=pytest.mark.ci) for case in MORE),
        *(pytest.param(case, marks=pytest.mark.exhaustive) for case in ALL),
    ],
)
def test_outputs_and_gradients_are_those_of_kerass_own_loop(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loops.check_is_kerass(_model(CASES[case]), _given(), monkeypatch)


@pytest.mark.ci
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", pytest.param("float64", marks=pytest.mark.exhaustive)])
def test_in_every_type_it_is_as_near_to_64_bit_arithmetic_as_kerass_own_loop(dtype: str) -> None:
    build = CASES["begun from states, which are returned"]
    loops.check_is_as_near(partial(_model, build), _given(), dtype)


@pytest.mark.ci
def test_a_step_convolves_once_and_once_on_its_way_back() -> None:
    model = _model(CASES["last output"])
    given = loops.tensors(_given(), "float32")

    def convolutions(*, form: bool) -> int:
        step = tf.function(loops.step_of(model, form=form), jit_compile=True, autograph=False)
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
