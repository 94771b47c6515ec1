"""Layers that multiply by a weight, in ring's form against Keras's own: outputs and all gradients."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import forms, products
from tests.ring.traced import products as made
from tests.ring.traced import traced
from tests.tiers import few

EQUATIONS = [
    ("abc,cd->abd", (5, 7), "d"),
    ("abc,cde->abde", (5, 3, 4), "de"),
    ("abc,cde->abde", (5, 3, 4), "e"),
    ("abc,cde->abde", (5, 3, 4), None),
    ("abcd,cde->abe", (5, 9), "e"),
    ("...x,xy->...y", (5, 9), "y"),
    ("ab,bc->ac", (9,), "c"),
    ("abc,dce->abde", (5, 3, 4), "de"),
    ("abc,edc->abde", (5, 3, 4), "e"),
    ("abcd,edc->abe", (5, 9), "e"),
    ("ab,cb->ac", (9,), "c"),
]


def _layer(equation: str, shape: tuple[int, ...], bias: str | None, **options: Any) -> Any:
    return keras.layers.EinsumDense(equation, shape, bias_axes=bias, bias_initializer="normal", **options)


def _shape(equation: str) -> tuple[int, ...]:
    given = equation.split(",")[0]
    return {"abc": (5, 6), "abcd": (5, 3, 2), "...x": (5, 6), "ab": (6,)}[given]


def _assert_same(model: Any, inputs: Any, tolerance: float) -> None:
    """Up to `tolerance` of the largest number of all: the gradient of a key's bias is nothing but rounding."""
    ours, theirs = (traced(model, inputs, within) for within in (partial(forms, model), nullcontext))
    largest = max(np.abs(own).max() for own in theirs)
    for mine, own in zip(ours, theirs, strict=True):
        assert mine.shape == own.shape
        np.testing.assert_allclose(mine, own, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize(
    ("activation", "equation", "shape", "bias"),
    few((activation, *one) for activation in (None, "gelu") for one in EQUATIONS),
)
def test_a_layer_is_itself(activation: str | None, equation: str, shape: tuple[int, ...], bias: str | None) -> None:
    inputs = keras.Input(_shape(equation))
    model = keras.Model(inputs, _layer(equation, shape, bias, activation=activation)(inputs))
    assert products.shared_axes(products.by_rows(equation)[0])
    _assert_same(model, np.random.default_rng(0).normal(size=(8, *_shape(equation))).astype(np.float32), 1e-5)


@pytest.mark.parametrize("equation", ["abc,cde->abde", "abc,dce->abde", "abc,edc->abde"])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_layer_multiplies_two_matrices_there_and_back(policy: str, equation: str) -> None:
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, _layer(equation, (5, 3, 4), "de", dtype=policy)(inputs))
    x = np.ones((8, 5, 6), np.float32)
    assert made(model, x, partial(forms, model)) == [(6, 12), (40, 6), (40, 12)]
    assert made(model, x, nullcontext) != [(6, 12), (40, 6), (40, 12)]


def test_what_is_no_product_with_a_weight_keeps_its_subscripts() -> None:
    for subscripts in ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ab,b", "ab,cb", "ab,cd->ab", "aab,bc->aac"):
        assert not products.shared_axes(products.by_rows(subscripts)[0])
    assert products.by_rows("btd,edw->btew") == ("btd,dew->btew", [1, 0, 2])
    assert products.by_rows("...x,yx->...y") == ("...x,xy->...y", [1, 0])


class Chosen(keras.layers.Layer):
    """What experts answer, each by its share."""

    def build(self, shape: Any) -> None:
        self.shares = self.add_weight(shape=(shape[-1], 3), initializer="normal")
        self.into = self.add_weight(shape=(3, shape[-1], 7), initializer="normal")
        self.out = self.add_weight(shape=(3, 7, shape[-1]), initializer="normal")

    def call(self, x: Any) -> Any:
        y = keras.ops.gelu(keras.ops.einsum("btd,edw->btew", x, self.into))
        shares = keras.ops.softmax(keras.ops.matmul(x, self.shares))
        return keras.ops.einsum("btew,bte,ewd->btd", y, shares, self.out)


@pytest.mark.parametrize("policy", few(["mixed_bfloat16", "float32"]))
def test_experts_are_themselves_and_none_is_multiplied_alone(policy: str) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, Chosen(dtype=policy)(inputs))
    x = np.random.default_rng(2).normal(size=(8, 5, 6)).astype(np.float32)
    _assert_same(model, x, 1e-5 if policy == "float32" else 2e-2)
    ours, theirs = made(model, x, partial(forms, model)), made(model, x, nullcontext)
    assert {(40, 21), (40, 6), (6, 21), (21, 6)} <= set(ours)
    assert 3 not in {shape[0] for shape in ours}
    assert 3 in {shape[0] for shape in theirs}


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("btew,bte,ewd->btd", [(4, 5, 3, 7), (4, 5, 3), (3, 7, 6)]),
        ("ab,bc,cd,de->ae", [(3, 4), (4, 5), (5, 6), (6, 2)]),
        ("a,b,c->abc", [(2,), (3,), (4,)]),
        ("ij,jk,ki->", [(3, 4), (4, 5), (5, 3)]),
        ("ab,bc,c", [(3, 4), (4, 5), (5,)]),
    ],
)
def test_several_operands_are_numpys_product(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(3)
    operands = [random.normal(size=shape) for shape in shapes]
    given = [tf.constant(each, tf.float32) for each in operands]
    assert products.two_by_two(subscripts, *given)
    with products.flat():
        made = keras.ops.einsum(subscripts, *given)
    np.testing.assert_allclose(made, np.einsum(subscripts, *operands), atol=1e-4)


def test_several_operands_of_unlike_types_or_unknown_sizes_are_left_to_keras() -> None:
    one, whole = tf.ones((2, 2)), tf.ones((2, 2), tf.int32)
    assert not products.two_by_two("ab,bc,cd->ad", one, one, tf.cast(one, tf.bfloat16))
    assert not products.two_by_two("ab,bc,cd->ad", whole, whole, whole)
    assert not products.two_by_two("...b,bc,cd->...d", one, one, one)
    with products.flat():
        np.testing.assert_array_equal(keras.ops.einsum("ab,bc,cd->ad", whole, whole, whole), np.full((2, 2), 4))


@pytest.mark.parametrize(
    ("policy", "kind"), few(product(["float32", "mixed_bfloat16", "mixed_float16"], ["multi-head", "grouped"]))
)
def test_attention_is_itself_with_its_biases_folded(kind: str, policy: str) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((12, 32))
    options: dict[str, Any] = {"bias_initializer": "normal", "dtype": policy}
    layer = (
        keras.layers.MultiHeadAttention(4, 8, **options)
        if kind == "multi-head"
        else keras.layers.GroupQueryAttention(8, 4, 2, **options)
    )
    model = keras.Model(inputs, layer(inputs, inputs))
    tolerance = 1e-5 if policy == "float32" else 1e-2
    _assert_same(model, np.random.default_rng(1).normal(size=(4, 12, 32)).astype(np.float32), tolerance)


def test_folded_biases_and_weights_have_the_gradients_of_float32() -> None:
    """Nearer to them than Keras's own, which rounds the gradient of a weight for each sample."""
    random = np.random.default_rng(2)
    rows, matrix, bias, upstream = (
        tf.constant(random.normal(size=shape), tf.float32) for shape in ((4096, 24), (24, 16), (16,), (4096, 16))
    )

    def gradients(kind: Any) -> list[Any]:
        given = [tf.cast(each, kind) for each in (rows, matrix, bias)]
        with tf.GradientTape() as tape:
            tape.watch(given)
            out = products._multiplied(*given)
        made = tape.gradient(out, given, tf.cast(upstream, kind))
        return [out, *made]

    exact = [
        rows @ matrix + bias,
        upstream @ tf.transpose(matrix),
        tf.transpose(rows) @ upstream,
        tf.reduce_sum(upstream, axis=0),
    ]
    for kind, tolerance in ((tf.float32, 1e-5), (tf.bfloat16, 1e-2)):
        for mine, own in zip(gradients(kind), exact, strict=True):
            assert np.linalg.norm(tf.cast(mine, tf.float32) - own) < tolerance * np.linalg.norm(own)


def test_a_gradient_of_a_gradient_is_there() -> None:
    inputs = keras.Input((5, 6))
    layer = keras.layers.EinsumDense("abc,cde->abde", (5, 3, 4), bias_axes="de")
    model = keras.Model(inputs, layer(inputs))
    x = tf.constant(np.random.default_rng(3).normal(size=(2, 5, 6)), tf.float32)

    def penalty() -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                out = tf.reduce_sum(tf.tanh(model(x)))
            loss = tf.reduce_sum(inner.gradient(out, x) ** 2)
        return outer.gradient(loss, layer.kernel.value)

    with forms(model):
        ours = penalty()
    np.testing.assert_allclose(ours, penalty(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("subscripts", "axes"),
    [
        ("abc,cd->abd", 1),
        ("abc,cde->abde", 1),
        ("abcd,cde->abe", 2),
        ("...x,xy->...y", 1),
        ("ab, bc -> ac", 1),
        ("abc,dc->abd", 0),  # the weight's first axis stays
        ("abc,bcd->abd", 0),  # a weight for each place
        ("abcd,abde->abce", 0),  # for each sample
        ("abc,cd->adb", 0),
        ("ab,bc", 0),
        ("a,b->ab", 0),
        ("abc,->abc", 0),
        ("ab,b->a", 1),
        ("xa...,a...->x", 0),
        ("aab,bc->aac", 0),
        ("...ab,bc->...ac", 1),
    ],
)
def test_which_products_are_of_a_weight(subscripts: str, axes: int) -> None:
    assert products.shared_axes(subscripts) == axes


@pytest.mark.parametrize(
    "subscripts", ["abc,cd->abd", "abc,cde->abde", "abcd,cde->abe", "abcd,cd->ab", "...x,xy->...y"]
)
def test_an_einsum_of_one_s_own_is_itself(subscripts: str) -> None:
    sizes = {"a": 3, "b": 4, "c": 5, "d": 6, "e": 7, "x": 5, "y": 2}
    random = np.random.default_rng(8)
    given, weight = (
        tf.constant(random.normal(size=[sizes[axis] for axis in part.replace("...", "ab")]), tf.float32)
        for part in subscripts.split("->")[0].split(",")
    )

    def both(kind: Any) -> list[Any]:
        operands = [tf.cast(given, kind), tf.cast(weight, kind)]
        with tf.GradientTape() as tape:
            tape.watch(operands)
            out = keras.ops.einsum(subscripts, *operands)
            loss = tf.reduce_sum(tf.sin(out))
        return [out, *tape.gradient(loss, operands)]

    with products.flat():
        ours = both(tf.float32)
    for mine, own in zip(ours, both(tf.float64), strict=True):
        assert mine.shape == own.shape
        # Terms of a sum cancel each other: what is rounded is of the size of the largest.
        np.testing.assert_allclose(mine, own, rtol=1e-5, atol=1e-6 * np.abs(own).max())


def test_what_does_not_fit_its_subscripts_is_refused_as_by_keras() -> None:
    x, weight = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    with products.flat():
        for subscripts in ("abcd,de->abce", "...abd,de->...abe"):
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
                keras.ops.einsum(subscripts, x, weight)


def test_numbers_of_two_types_and_of_unknown_rank_stay_keras_s() -> None:
    x, weight = np.ones((2, 3, 4), np.int32), np.ones((4, 5), np.float32)
    run = tf.function(lambda x: keras.ops.einsum("...a,ab->...b", x, weight), input_signature=[tf.TensorSpec(None)])
    with products.flat():
        assert run(np.ones((2, 3, 4), np.float32)).shape == (2, 3, 5)
        assert keras.ops.einsum("abc,cd->abd", x, weight).dtype == tf.float32
        assert keras.ops.einsum("abc,cd->abd", x, x[0].T).dtype == tf.int32


def test_a_layer_of_one_s_own_keeps_its_call() -> None:
    class Own(keras.layers.EinsumDense):  # type: ignore[misc]
        def call(self, inputs: Any, training: Any = None) -> Any:
            return super().call(inputs) * 2

    layer = Own("abc,cd->abd", (5, 7), bias_axes="d")
    layer.build((2, 5, 6))
    assert not products.folds(layer)
    assert not products.folds(keras.layers.EinsumDense("abc,cd->abd", (5, 7), bias_axes="d"))  # not built


def test_a_layer_with_further_weights_of_low_rank_keeps_them() -> None:
    inputs = keras.Input((5, 6))
    layer = keras.layers.EinsumDense("abc,cde->abde", (5, 3, 4), bias_axes="de")
    model = keras.Model(inputs, layer(inputs))
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.random.default_rng(4).normal(size=layer.lora_kernel_b.shape))
    _assert_same(model, np.random.default_rng(5).normal(size=(8, 5, 6)).astype(np.float32), 1e-5)


def test_quantized_layers_stay_keras_s() -> None:
    inputs = keras.Input((5, 6))
    layer = keras.layers.EinsumDense("abc,cd->abd", (5, 8), bias_axes="d")
    keras.Model(inputs, layer(inputs))
    assert products.folds(layer)
    layer.quantize("int8")
    assert not products.folds(layer)


def test_a_batch_of_unknown_size_has_its_shape() -> None:
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, keras.layers.EinsumDense("abc,cde->abde", (None, 3, 4), bias_axes="de")(inputs))

    @tf.function(input_signature=[tf.TensorSpec((None, None, 6))])  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with forms(model):
            return model(x)

    x = np.random.default_rng(6).normal(size=(3, 4, 6)).astype(np.float32)
    np.testing.assert_allclose(run(x), model(x), rtol=1e-5, atol=1e-6)
