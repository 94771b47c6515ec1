"""Fused attention: where it stands in for Keras's, and, on a GPU, that it is equal to it."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from ringscope.ring.forms import attention  # noqa: E402
from ringscope.ring.step import retrace  # noqa: E402

on_gpu = pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="no GPU here")


def _qkv(
    dtype: str = "bfloat16",
    *,
    heads: int = 4,
    shared: int = 4,
    queries: int = 16,
    keys: int = 16,
    sizes: tuple[int, int] = (64, 64),
) -> list[Any]:
    """sizes: of queries and keys, and of values."""
    random, (size, of_values) = np.random.default_rng(0), sizes
    shapes = (2, queries, heads, size), (2, keys, shared, size), (2, keys, shared, of_values)
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
    assert not attention.fits(*_qkv(**arguments), None)


def test_an_open_or_too_wide_shape_stays_kerass() -> None:
    query, key, value = _qkv()
    assert attention.fits(query, key, value, None)
    assert attention.fits(query, key, value, _mask((2, 1, 16, 16)))
    wide = tf.zeros((2, 16, 4, 260), tf.bfloat16)
    assert not attention.fits(wide, wide, wide, None)
    assert not attention.fits(query, key, value[:, :-1], None) and not attention.fits(query, key[..., :-8], value, None)
    seen = []

    @tf.function(input_signature=[tf.TensorSpec((None, 16, 4, 64), tf.bfloat16)])  # type: ignore[untyped-decorator]
    def traced(x: Any) -> Any:
        seen.append(attention.fits(x, x, x, None))
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


def _kernel(operands: list[Any], scale: float, causal: bool) -> Any:
    """What cuDNN's kernel computes, in float32: softmax(scale * query . key + bias) . value; in sizes that it takes."""
    query, key, value, *bias = (tf.cast(each, tf.float32) for each in operands)
    assert query.shape[3] % 8 == 0 and query.shape[3] == key.shape[3] == value.shape[3]
    assert (
        not bias or query.shape[1] % 2 == key.shape[1] % 2 == 0 and bias[0].shape[2:] == (query.shape[1], key.shape[1])
    )
    key, value = (tf.repeat(each, query.shape[2] // key.shape[2], axis=2) for each in (key, value))
    scores = scale * tf.einsum("btnh,bsnh->bnts", query, key) + sum(bias)
    if causal:
        earlier = tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, 0)
        scores = tf.where(earlier, scores, scores.dtype.min)
    return tf.einsum("bnts,bsnh->btnh", tf.nn.softmax(scores), value)


def _kernel_back(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    query, key, value, _, upstream, *bias, _ = operands
    with tf.GradientTape() as tape:
        tape.watch([query, key, value])
        out = _kernel([query, key, value, *bias], scale, causal)
    return tape.gradient(out, [query, key, value], tf.cast(upstream, tf.float32))  # type: ignore[no-any-return]


MASKS = {
    "none": None,
    "of keys, for all queries": (2, 1, 1, 64),
    "of queries and keys": (2, 1, 64, 64),
    "of each head": (1, 4, 64, 64),
    "for all samples": (64, 64),
    "of odd ranks": (4, 1, 64),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shared", [4, 2])
def test_around_the_kernel_it_is_kerass_attention(
    mask: str, causal: bool, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries that may look at nothing included: Keras has them look at all keys alike."""
    monkeypatch.setattr(attention, "forward", lambda given, *how: [tf.cast(_kernel(given, *how), given[0].dtype), None])
    monkeypatch.setattr(attention, "backward", _kernel_back)
    given, shape, lets = _qkv(shared=shared, queries=64, keys=64), MASKS[mask], None
    if shape:
        lets = _mask(shape).numpy()
        lets[(*[-1] * (len(shape) - 2), min(5, shape[-2] - 1))] = False
    fused, exact = (
        _both(operands, lets, causal, fused=fused) for operands, fused in ((given, True), (_wide(given), False))
    )
    for mine, theirs in zip(fused, exact, strict=True):
        assert np.linalg.norm(tf.cast(mine, tf.float32) - theirs) < 1e-2 * np.linalg.norm(theirs)


ODD = [  # queries, keys, sizes, mask
    (5, 7, (64, 64), (2, 1, 5, 7)),
    (6, 7, (12, 12), (2, 1, 1, 7)),
    (7, 4, (20, 33), None),
    (1, 5, (33, 8), (2, 4, 1, 5)),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "sizes", "mask"), ODD)
def test_sizes_that_the_kernel_does_not_have_are_filled_up(
    queries: int, keys: int, sizes: tuple[int, int], mask: Any, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that may see nothing sees all the keys there are, and none that was added."""
    monkeypatch.setattr(attention, "forward", lambda given, *how: [tf.cast(_kernel(given, *how), given[0].dtype), None])
    monkeypatch.setattr(attention, "backward", _kernel_back)
    given, lets = _qkv(shared=2, queries=queries, keys=keys, sizes=sizes), None
    if mask:
        lets = _mask(mask).numpy()
        lets[-1, :, -1] = False
    fused, exact = _both(given, lets, causal, fused=True), _both(_wide(given), lets, causal, fused=False)
    for mine, theirs in zip(fused, exact, strict=True):
        assert mine.shape == theirs.shape
        assert np.linalg.norm(tf.cast(mine, tf.float32) - theirs) < 1e-2 * np.linalg.norm(theirs) + 1e-3


@pytest.mark.parametrize(("policy", "taken"), [("mixed_bfloat16", True), ("float32", False)])
def test_queries_turned_in_float32_attend_in_bfloat16_where_the_model_is_mixed(
    policy: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def forward(given: list[Any], *how: Any) -> list[Any]:
        seen.extend(each.dtype for each in given)
        return [tf.cast(_kernel(given, *how), given[0].dtype), None]

    monkeypatch.setattr(attention, "forward", forward)
    monkeypatch.setattr(attention, "backward", _kernel_back)
    query, key, value = _qkv()
    given, before = [*_wide([query, key]), value], keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        fused = _both(given, None, True, fused=True)
    finally:
        keras.config.set_dtype_policy(before)
    exact = _both(_wide(given), None, True, fused=False)
    assert seen == [tf.bfloat16] * 3 * taken
    assert [each.dtype for each in fused] == [tf.float32, tf.float32, tf.float32, tf.bfloat16]
    for mine, theirs in zip(fused, exact, strict=True):
        assert np.linalg.norm(tf.cast(mine, tf.float32) - theirs) < 1e-2 * np.linalg.norm(theirs)


def test_a_second_derivative_is_an_error_of_this_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the step is traced again without it."""
    monkeypatch.setattr(attention, "forward", lambda given, *how: [tf.cast(_kernel(given, *how), given[0].dtype), None])
    monkeypatch.setattr(attention, "backward", _kernel_back)
    query, key, value = _qkv()
    with attention.fused(), tf.GradientTape() as outer:
        outer.watch(query)
        with tf.GradientTape() as inner:
            inner.watch(query)
            out = keras.ops.dot_product_attention(query, key, value)
        slope = tf.reduce_sum(inner.gradient(out, query) ** 2)
    with pytest.raises(NotImplementedError, match="second derivative") as raised:
        outer.gradient(slope, query)
    assert retrace._raising(raised.value.__traceback__) == "attention"


def _wide(operands: list[Any]) -> list[Any]:
    return [tf.cast(each, tf.float32) for each in operands]


def _both(operands: list[Any], mask: Any, causal: bool, *, fused: bool) -> list[Any]:
    """The attention and the gradients of a sum of its squares."""
    with attention.fused() if fused else nullcontext(), tf.GradientTape() as tape:
        tape.watch(operands)
        out = keras.ops.dot_product_attention(*operands, mask=mask, is_causal=causal)
        loss = tf.reduce_sum(tf.cast(out, tf.float32) ** 2)
    return [out, *tape.gradient(loss, operands)]


@on_gpu
@pytest.mark.parametrize(
    ("mask", "causal", "shared", "keys"), [*itertools.product(("none", "row", "full"), (False, True), (4, 2), (16, 64))]
)
def test_on_a_gpu_it_is_kerass_attention_up_to_rounding(mask: str, causal: bool, shared: int, keys: int) -> None:
    given = _qkv(shared=shared, queries=64, keys=keys)
    lets = None if mask == "none" else _mask((2, 1, 1 if mask == "row" else 64, keys)).numpy()
    if lets is not None:
        lets[-1, :, -1] = False

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def compiled(operands: list[Any]) -> list[Any]:
        return _both(operands, lets, causal, fused=True)

    exact = _both(_wide(given), lets, causal, fused=False)
    assert all(np.isfinite(each.numpy()).all() for each in exact)
    for mine, theirs in zip(compiled(given), exact, strict=True):
        distance = np.linalg.norm(tf.cast(mine, tf.float32) - theirs) / np.linalg.norm(theirs)
        assert distance < 1e-2


@on_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys", "sizes", "mask"), [*ODD, (127, 63, (36, 36), (2, 1, 1, 63))])
def test_on_a_gpu_sizes_that_the_kernel_does_not_have_are_filled_up(
    queries: int, keys: int, sizes: tuple[int, int], mask: Any, causal: bool
) -> None:
    given, lets = _qkv(shared=2, queries=queries, keys=keys, sizes=sizes), None
    if mask:
        lets = _mask(mask).numpy()
        lets[-1, :, -1] = False

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def compiled(operands: list[Any]) -> list[Any]:
        return _both(operands, lets, causal, fused=True)

    for mine, theirs in zip(compiled(given), _both(_wide(given), lets, causal, fused=False), strict=True):
        assert mine.shape == theirs.shape
        assert np.linalg.norm(tf.cast(mine, tf.float32) - theirs) < 2e-2 * np.linalg.norm(theirs) + 1e-3
