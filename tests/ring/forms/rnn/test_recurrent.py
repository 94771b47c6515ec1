"""Recurrent layers as one loop each way, in XLA, against Keras's own loop and against 64-bit arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ringscope.ring.forms import layers as xla
from ringscope.ring.forms.rnn import layers as recurrent
from ringscope.ring.forms.rnn import loop as turns
from ringscope.ring.step import choose
from tests.ring import loops
from tests.ring.loops import Builder, Given

BATCH, STEPS, INPUTS, UNITS = 6, 7, 3, 5  # two turns of the loop of three steps each, and a rest


def _given() -> Given:
    """Sequences, states to begin from, and masks: of padding, and of steps anywhere, a whole sequence and first ones
    among them."""
    random = np.random.default_rng(0)
    anywhere = random.integers(0, 2, (BATCH, STEPS)).astype(bool)
    anywhere[0], anywhere[1, :3] = False, False
    return {
        "x": random.normal(size=(BATCH, STEPS, INPUTS)),
        "h": random.normal(size=(BATCH, UNITS)),
        "c": random.normal(size=(BATCH, UNITS)),
        "padded": np.arange(STEPS) < np.array([7, 1, 4, 2, 7, 5])[:, None],
        "anywhere": anywhere,
    }


def _both(mask: str | None = None, *, begun: bool = False, **options: Any) -> Builder:
    """A GRU and an LSTM of these options; what they return."""

    def build(given: Any) -> list[Any]:
        calls = {} if mask is None else {"mask": given[mask]}
        gru, lstm = layers.GRU(UNITS, **options), layers.LSTM(UNITS, **options)
        one = gru(given["x"], initial_state=given["h"] if begun else None, **calls)
        other = lstm(given["x"], initial_state=[given["h"], given["c"]] if begun else None, **calls)
        return [*_listed(one), *_listed(other)]

    return build


def _simple(mask: str | None = None, *, begun: bool = False, **options: Any) -> Builder:
    """A simple recurrent layer likewise."""

    def build(given: Any) -> list[Any]:
        calls = {} if mask is None else {"mask": given[mask]}
        layer = layers.SimpleRNN(UNITS, **options)
        return _listed(layer(given["x"], initial_state=given["h"] if begun else None, **calls))

    return build


def _listed(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


def _stacked(given: Any) -> list[Any]:
    x = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True))(given["x"], mask=given["padded"])
    return [layers.Bidirectional(layers.LSTM(UNITS), merge_mode="sum")(layers.Masking()(x))]


FEW: dict[str, Builder] = {
    "simple": _simple("anywhere", begun=True, return_sequences=True, return_state=True),
    "masked anywhere": _both("anywhere", begun=True, return_sequences=True, return_state=True),
}
MORE: dict[str, Builder] = {
    "dropped states, activated by others": _both(
        "anywhere", recurrent_dropout=0.5, activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True
    ),
}
ALL: dict[str, Builder] = {
    "last output": _both(),
    "dropped states": _both("anywhere", recurrent_dropout=0.5, begun=True, return_sequences=True, return_state=True),
    "activated by others": _both(activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True),
    "begun from states, which are returned": _both(begun=True, return_sequences=True, return_state=True),
    "dropped inputs": _both(dropout=0.5, return_sequences=True),
    "masked anywhere, last output": _both("anywhere", begun=True),
    "backwards": _both(go_backwards=True, return_sequences=True, return_state=True),
    "padded": _both("padded", return_sequences=True, return_state=True),
    "padded, backwards": _both("padded", go_backwards=True, return_sequences=True, return_state=True),
    "masked, zeros": _both("anywhere", zero_output_for_mask=True, return_sequences=True),
    "masked, last output or zeros": _both("anywhere", zero_output_for_mask=True),
    "dropped inputs and states": _both(dropout=0.3, recurrent_dropout=0.5, go_backwards=True, return_sequences=True),
    "simple, dropped inputs and states": _simple("padded", dropout=0.3, recurrent_dropout=0.5, activation="softplus"),
    "simple, no bias": _simple(use_bias=False, go_backwards=True),
    "no bias": _both("padded", use_bias=False, activation="softsign", return_state=True),
    "both ways, stacked": _stacked,
}
CASES = FEW | MORE | ALL


def _model(build: Builder, dtype: str = "float32") -> Any:
    return loops.model_of(build, _given(), 0.5, dtype)


def _run(model: Any, *, form: bool, compiled: bool = True) -> list[np.ndarray]:
    return loops.run(model, _given(), form=form, compiled=compiled)


@pytest.fixture(autouse=True)
def _three_steps_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "CHUNK", 3)


@pytest.mark.parametrize(
    "case",
    [
        *FEW,
        *(pytest.param(case, marks=pytest.mark.ci) for case in MORE),
        *(pytest.param(case, marks=pytest.mark.exhaustive) for case in ALL),
    ],
)
def test_outputs_and_gradients_are_those_of_kerass_own_loop(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(CASES[case])
    # XLA draws by an algorithm of its own.
    loops.check_is_kerass(model, _given(), monkeypatch, compiled="dropped" in case)


@pytest.mark.ci
# What a simple layer puts out is rounded as Keras's own is, and chance says which comes nearer.
@pytest.mark.parametrize(("kind", "chance"), [(_both, 1.0), (_simple, 1.5)])
@pytest.mark.parametrize(
    "dtype",
    ["mixed_bfloat16", *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("mixed_float16", "float64"))],
)
def test_in_every_type_it_is_as_near_to_64_bit_arithmetic_as_kerass_own_loop(
    dtype: str, kind: Callable[..., Builder], chance: float
) -> None:
    build = kind(begun=True, return_sequences=True, return_state=True)
    loops.check_is_as_near(partial(_model, build), _given(), dtype, chance=chance)


@pytest.fixture()
def like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras takes cuDNN's operations, which can be traced without a GPU."""
    monkeypatch.setattr(import_module("keras.src.backend.tensorflow.rnn"), "_is_gpu_available", lambda: True)


def _operations(model: Any, *, form: bool) -> set[str]:
    given = {k: tf.constant(v if v.dtype == bool else v.astype("float32")) for k, v in _given().items()}
    traced = tf.function(loops.step_of(model, form=form), autograph=False).get_concrete_function(given)
    return {operation.type for operation in traced.graph.get_operations()}


@pytest.mark.usefixtures("like_a_gpu")
@pytest.mark.parametrize(
    "case", ["begun from states, which are returned", pytest.param("both ways, stacked", marks=pytest.mark.ci)]
)
def test_on_a_gpu_too_nothing_of_cudnn_is_traced(case: str) -> None:
    model = _model(CASES[case])
    assert {"CudnnRNNV3", "CudnnRNNBackpropV3"} <= _operations(model, form=False)
    assert not [name for name in _operations(model, form=True) if "Cudnn" in name]


@pytest.mark.usefixtures("like_a_gpu")
def test_auto_takes_the_loop_and_leaves_to_cudnn_what_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])

    def found(layer: Any) -> tuple[str, str]:
        return choose.resolved(keras.Sequential([keras.Input((STEPS, INPUTS), 2), layer]), 1, 1)

    for layer in (
        layers.Bidirectional(layers.GRU(3)),
        layers.LSTM(3, dropout=0.1),
        layers.LSTM(3, use_cudnn=False),
        layers.LSTM(3, recurrent_dropout=0.1),  # without cuDNN, by Keras's own loop
        layers.GRU(3, reset_after=False),
    ):
        assert found(layer) == ("compiled", "there is a GPU")
    step, why = found(layers.LSTM(3, stateful=True))
    assert step == "fit" and why.endswith("runs in cuDNN, which XLA cannot compile")


@pytest.mark.ci
def test_on_a_gpu_stacks_that_will_be_written_begin_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by a call of its own, which XLA has on GPUs alone. There an LSTM's losses came out the same with it
    (docs/results, 2026-11-25)."""
    monkeypatch.setattr(turns, "has_gpu", lambda: True)
    model, given = _model(_both()), {k: tf.constant(v) for k, v in _given().items()}
    step = loops.step_of(model, form=True)
    graph = tf.function(step, autograph=False).get_concrete_function(given).graph
    made = [op.get_attr("module") for op in graph.get_operations() if op.type == "XlaCallModule"]
    assert len(made) == len(set(made)) == 7  # states, sums and gradients of both, the LSTM's cells
    with pytest.raises(tf.errors.OpError, match="AllocateBuffer"):
        tf.function(step, jit_compile=True)(given)


@pytest.mark.ci
def test_where_cudnn_would_compute_it_a_padded_step_puts_out_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its kernels do, which evaluate the model: states are kept, and the last output is the last state."""
    model = _model(_both("padded", return_sequences=True, return_state=True))
    padded = _given()["padded"][..., None]
    plain = _run(model, form=False, compiled=False)
    monkeypatch.setattr(recurrent, "runs_in_cudnn", lambda layer: True)
    form = _run(model, form=True)
    for zeros, kept in list(zip(form, plain, strict=True))[: len(model.outputs)]:
        expected = kept * padded if kept.ndim == 3 else kept
        np.testing.assert_allclose(zeros, expected, rtol=1e-5, atol=1e-6)
        assert kept.ndim == 2 or np.abs(kept[~padded[..., 0]]).min() > 0


@pytest.mark.ci
def test_xla_knows_how_many_turns_the_loops_have() -> None:
    """Else it would ask the GPU after each."""
    model = _model(_both())
    given = {k: tf.constant(v if v.dtype == bool else v.astype("float32")) for k, v in _given().items()}
    step = tf.function(loops.step_of(model, form=True), jit_compile=True, autograph=False)
    text = step.experimental_get_compiler_ir(given)(stage="optimized_hlo")
    turns = re.findall(r'"known_trip_count":{"n":"(\d+)"}', text)
    assert turns == ["2"] * 4  # two layers, there and back
    assert len(re.findall(r" while\(", text)) == 4


class OwnLoop(layers.GRU):  # type: ignore[misc]
    def inner_loop(self, *given: Any, **options: Any) -> Any:
        return super().inner_loop(*given, **options)


class Named(layers.LSTM):  # type: ignore[misc]
    """A class of one's own that computes as Keras's does."""


@pytest.mark.parametrize(
    ("layer", "fits"),
    [
        (lambda: layers.GRU(4), True),
        (lambda: layers.LSTM(4, use_cudnn=False, dropout=0.1, go_backwards=True), True),
        (lambda: layers.LSTM(4, implementation=1), True),
        (lambda: Named(4), True),
        (lambda: layers.GRU(4, recurrent_dropout=0.1), True),
        (lambda: layers.LSTM(4, dropout=0.1, implementation=1), True),
        (lambda: layers.GRU(4, reset_after=False), False),
        (lambda: layers.LSTM(4, use_bias=False), True),
        (lambda: layers.LSTM(4, activation="relu"), True),
        (lambda: layers.GRU(4, recurrent_activation="hard_sigmoid"), True),
        (lambda: layers.LSTM(4, activation=layers.PReLU()), False),
        (lambda: layers.GRU(4, activation=lambda x: x), False),
        (lambda: layers.GRU(4, unroll=True), False),
        (lambda: layers.LSTM(4, stateful=True), False),
        (lambda: layers.RNN(layers.LSTMCell(4)), False),
        (lambda: layers.SimpleRNN(4, dropout=0.1, recurrent_dropout=0.1), True),
        (lambda: layers.SimpleRNN(4, activation=layers.PReLU()), False),
        (lambda: layers.Dense(4), False),
        (lambda: OwnLoop(4), False),
    ],
)
def test_other_layers_stay_kerass_own(layer: Callable[[], Any], fits: bool) -> None:
    made = layer()
    model = keras.Sequential([keras.Input((STEPS, INPUTS), 2), made])
    with xla.forms(model):
        assert ("inner_loop" in made.__dict__) == recurrent.fits(made) == fits
    assert "inner_loop" not in made.__dict__
