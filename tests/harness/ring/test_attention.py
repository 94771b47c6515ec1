"""Fused attention: where it stands in for Keras's, and, on a GPU, that it is equal to it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from harness.ring.forms import attention  # noqa: E402

on_gpu = pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="no GPU here")


def _qkv(dtype: str = "bfloat16", *, heads: int = 4, shared: int = 4, queries: int = 16, keys: int = 16) -> list[Any]:
    random = np.random.default_rng(0)
    shapes = (2, queries, heads, 64), (2, keys, shared, 64), (2, keys, shared, 64)
    return [tf.cast(tf.constant(random.normal(size=shape)), dtype) for shape in shapes]


def _mask(shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng(1)
    return tf.constant(random.random(shape) < 0.7)


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("another type", {"dtype": "float32"}),
        ("heads that do not share evenly", {"heads": 4, "shared": 3}),
    ],
)
def test_what_cudnn_has_no_kernel_for_stays_kerass(what: str, arguments: dict[str, Any]) -> None:
    assert not attention._fits(*_qkv(**arguments), None)


def test_an_open_or_odd_shape_stays_kerass() -> None:
    query, key, value = _qkv()
    assert attention._fits(query, key, value, None)
    assert attention._fits(query, key, value, _mask((2, 1, 16, 16)))
    wide = tf.zeros((2, 16, 4, 260), tf.bfloat16)
    assert not attention._fits(wide, wide, wide, None)
    odd = tf.zeros((2, 15, 4, 64), tf.bfloat16)
    assert attention._fits(odd, odd, odd, None) and not attention._fits(odd, odd, odd, _mask((2, 1, 15, 15)))
    seen = []

    @tf.function(input_signature=[tf.TensorSpec((None, 16, 4, 64), tf.bfloat16)])  # type: ignore[untyped-decorator]
    def traced(x: Any) -> Any:
        seen.append(attention._fits(x, x, x, None))
        return x

    traced(query)
    assert seen == [False]


def test_a_layer_traced_in_this_form_calls_the_kernel_by_its_name() -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("here the kernel is there")
    layer = keras.layers.MultiHeadAttention(2, 64, dtype="mixed_bfloat16")
    x = tf.random.normal((2, 16, 128))
    layer(x, x)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        with attention.fused(), tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, x, use_causal_mask=True))
        return tape.gradient(loss, x)

    with pytest.raises(tf.errors.OpError, match=r"__cudnn\$fmhaSoftmax|platform CPU is not among the platforms"):
        step(x)


@on_gpu
@pytest.mark.parametrize(
    ("masked", "causal", "shared", "keys"), [*itertools.product((False, True), (False, True), (4, 2), (16, 64))]
)
def test_on_a_gpu_it_is_kerass_attention_up_to_rounding(masked: bool, causal: bool, shared: int, keys: int) -> None:
    given = _qkv(shared=shared, queries=64, keys=keys)
    mask = _mask((2, 1, 64, keys)) if masked else None

    def both(operands: list[Any]) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(operands)
            out = keras.ops.dot_product_attention(*operands, mask=mask, is_causal=causal)
            loss = tf.reduce_sum(tf.cast(out, tf.float32) ** 2)
        return [out, *tape.gradient(loss, operands)]

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def fused(operands: list[Any]) -> list[Any]:
        with attention.fused():
            return both(operands)

    exact = both([tf.cast(tensor, tf.float32) for tensor in given])
    assert all(np.isfinite(each.numpy()).all() for each in exact)
    for mine, theirs in zip(fused(given), exact, strict=True):
        distance = np.linalg.norm(tf.cast(mine, tf.float32) - theirs) / np.linalg.norm(theirs)
        assert distance < 1e-2
