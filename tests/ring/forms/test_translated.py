"""Operations that are translated for XLA at once, against TensorFlow's own."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from ringscope.ring.forms import translated  # noqa: E402

POSITIVE = ("Log1p", "Reciprocal", "Rsqrt", "Sqrt")
KINDS = (*translated.UNARY, "Relu")


def _both(function: Any, form: Any, *given: Any) -> tuple[list[Any], Any]:
    """What it gives, compiled, with the gradients of the sum of its squares, first and second; and its graph."""

    def traced(*given: Any) -> list[Any]:
        with form():
            with tf.GradientTape() as outer:
                outer.watch(given)
                with tf.GradientTape() as tape:
                    tape.watch(given)
                    made = function(*given)
                    squares = tf.reduce_sum(tf.square(made))
                first = tape.gradient(squares, given)
                total = tf.add_n([tf.reduce_sum(tf.square(each)) for each in first])
            return [made, *first, *outer.gradient(total, given)]

    compiled = tf.function(traced, autograph=False, jit_compile=True)
    graph = compiled.get_concrete_function(*given).graph
    return [np.asarray(tf.cast(each, tf.float64)) for each in compiled(*given)], graph


def _kinds(graph: Any) -> set[str]:
    return {each.type for each in graph.get_operations()}


def _kernel(kind: str) -> Any:
    argument = "features" if kind == "Relu" else "x"
    return lambda x: getattr(tf.raw_ops, kind)(**{argument: x})


@pytest.mark.parametrize(
    "kind, dtype",
    [(kind, dtype) for kind in KINDS for dtype in ("float32", "bfloat16")]
    + [("Sigmoid", "float16"), ("Relu", "float64")],
)
def test_values_and_gradients_are_tensorflows(kind: str, dtype: str) -> None:
    random = np.random.default_rng(0)
    numbers = random.normal(size=(5, 7))
    numbers[0, :2] = 0.0, -0.0
    x = tf.cast(np.abs(numbers) + 0.5 if kind in POSITIVE else numbers, dtype)
    own, plain = _both(_kernel(kind), nullcontext, x)
    ours, graph = _both(_kernel(kind), translated.at_once, x)
    assert kind in _kinds(plain)
    assert not {kind, "ReluGrad"} & _kinds(graph)
    for mine, theirs in zip(ours, own, strict=True):
        # XLA fuses the two graphs otherwise: numbers of 16 bits are rounded in other places.
        off = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
        np.testing.assert_allclose(mine, theirs, rtol=off, atol=off * np.abs(theirs).max())


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_for_xla_is_the_same(kind: str) -> None:
    def program(form: Any) -> list[str]:
        def traced(x: Any) -> Any:
            with form():
                return _kernel(kind)(x)

        x = tf.ones([4, 6])
        text = tf.function(traced, autograph=False, jit_compile=True).experimental_get_compiler_ir(x)(stage="hlo")
        made = re.findall(r"^\s*(?:ROOT )?%\S+ = .*?[\]})] ([a-z-]+)\(", text, re.MULTILINE)
        return sorted(each for each in made if each not in ("broadcast", "reshape"))

    own, ours = program(nullcontext), program(translated.at_once)
    assert ours == own
    assert set(ours) - {"parameter", "constant"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_biass_gradient_is_tensorflows(dtype: str) -> None:
    random = np.random.default_rng(1)
    x, bias = (tf.cast(random.normal(size=shape), dtype) for shape in ((6, 5, 4), (4,)))
    own, plain = _both(tf.nn.bias_add, nullcontext, x, bias)
    ours, graph = _both(tf.nn.bias_add, translated.at_once, x, bias)
    assert "BiasAddGrad" in _kinds(plain)
    assert "BiasAddGrad" not in _kinds(graph)
    for mine, theirs in zip(ours, own, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6 if dtype == "float32" else 2e-2)


def test_what_a_loop_holds_and_single_numbers_stay() -> None:
    def function(x: Any) -> Any:
        looped = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.sigmoid(x)), [0, x], maximum_iterations=3)[1]
        return looped * tf.sqrt(tf.reduce_sum(tf.square(x)) + 1)

    x = tf.constant(np.random.default_rng(2).normal(size=(3, 4)), tf.float32)
    own, _ = _both(function, nullcontext, x)
    ours, graph = _both(function, translated.at_once, x)
    assert "Sqrt" in _kinds(graph)
    for mine, theirs in zip(ours, own, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_gradients_that_are_found_by_operations_are_tensorflows() -> None:
    def found(form: Any) -> Any:
        @tf.function(autograph=False)
        def traced(x: Any) -> Any:
            with form():
                return tf.gradients(tf.reduce_sum(tf.square(tf.sigmoid(x)) + tf.exp(x)), x)

        return traced(tf.constant(np.random.default_rng(3).normal(size=(3, 4)), tf.float32))

    own, ours = found(nullcontext), found(translated.at_once)
    np.testing.assert_allclose(ours[0], own[0], rtol=1e-6)


def test_magnitudes_of_integers_stay_and_are_tensorflows() -> None:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with translated.at_once():
            return tf.abs(x)

    np.testing.assert_array_equal(run(tf.constant([[-3, 4], [0, -7]])), [[3, 4], [0, 7]])
