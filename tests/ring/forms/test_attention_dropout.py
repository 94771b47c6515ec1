"""Attention that drops scores, in both ways, against float32's with the same mask.

Without a GPU cuDNN's kernels are made by the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import attention_dropout, cudnn_dropout, hashed, layers
from ringscope.ring.internals import stablehlo
from tests.tiers import few

RATE = 0.25
on_gpu = pytest.mark.skipif(cudnn_dropout.library() is None, reason="no GPU here, or the call is not built")


class Kernel:
    """cuDNN's kernels by the definition, in float32; the mask by the hash of the seed that they are given."""

    @staticmethod
    def forward(operands: Any, bias: Any, scale: float, causal: bool, dropout: Any) -> list[Any]:
        query, key, value = (tf.cast(each, tf.float32) for each in operands)
        share = tf.nn.softmax(_scores(query, key, bias, scale, causal))
        stays = hashed.kept(tf.reshape(tf.bitcast(dropout.seed, tf.uint32), [2]), share.shape, dropout.rate)
        out = tf.einsum("bnts,bsnh->btnh", tf.where(stays, share / (1 - dropout.rate), 0.0), _shared(value, query))
        return [tf.cast(out, operands[0].dtype), tf.zeros(())]

    @staticmethod
    def backward(operands: Any, *how: Any) -> list[Any]:
        given = [tf.cast(each, tf.float32) for each in operands[:3]]
        with tf.GradientTape() as tape:
            tape.watch(given)
            out, _ = Kernel.forward(given, *how)
        gradients = tape.gradient(out, given, tf.cast(operands[4], tf.float32))
        return [tf.cast(each, operands[0].dtype) for each in gradients]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the host: a GPU multiplies float32 in TF32."""
    monkeypatch.setattr(cudnn_dropout, "forward", Kernel.forward)
    monkeypatch.setattr(cudnn_dropout, "backward", Kernel.backward)
    monkeypatch.setattr(cudnn_dropout, "has_kernel", lambda *given, **how: True)
    with tf.device("CPU:0"):
        yield


def _scores(query: Any, key: Any, bias: list[Any], scale: float, causal: bool) -> Any:
    query, key, *bias = (tf.cast(each, tf.float32) for each in (query, _shared(key, query), *bias))
    scores = tf.einsum("btnh,bsnh->bnts", query, key) * scale + sum(bias)
    earlier = tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, 0)
    return tf.where(earlier, scores, -1e30) if causal else scores


def _shared(each: Any, query: Any) -> Any:
    return tf.repeat(each, query.shape[2] // each.shape[2], axis=2)


def _exact(query: Any, key: Any, value: Any, mask: Any, stays: Any, scale: float, causal: bool) -> Any:
    """In the types that it is given: the softmax over what the mask lets through, and zeros where a score is dropped.
    Nothing comes of a query that sees nothing."""
    scores = tf.einsum("btnh,bsnh->bnts", query, _shared(key, query)) * scale
    lets = tf.ones(scores.shape, tf.bool) if mask is None else tf.broadcast_to(mask, scores.shape)
    if causal:
        lets = tf.logical_and(lets, tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, 0))
    share = tf.nn.softmax(tf.where(lets, scores, -1e30)) * tf.cast(lets, tf.float32)
    return tf.einsum("bnts,bsnh->btnh", tf.where(stays, share / (1 - RATE), 0.0), _shared(value, query))


def _gradients(attend: Any, operands: list[Any], upstream: Any, compiled: bool) -> list[np.ndarray]:
    @tf.function(jit_compile=compiled, autograph=False)  # type: ignore[untyped-decorator]
    def run(*operands: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(operands)
            out = attend(*operands)
        return [out, *tape.gradient(out, operands, tf.cast(upstream, out.dtype))]

    return [np.asarray(tf.cast(each, tf.float32)) for each in run(*operands)]


MASKS = {"none": None, "of keys": (2, 1, 1, 24), "of each head": (2, 4, 16, 24), "for all": (1, 1, 16, 24)}


KINDS = [("by_xla", "float32", 4), ("fused", "bfloat16", 4)]
FURTHER = [("by_xla", "bfloat16", 2), ("fused", "float16", 2)]
# With each mask one kind hides later keys and the other does not; the other way round now and then.
HIDES = [(kind, mask, (k + m) % 2 == 1) for k, kind in enumerate(KINDS) for m, mask in enumerate(MASKS)]
CASES = [(*kind, mask, causal) for kind, mask, hides in HIDES for causal in (hides, not hides)]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("way", "dtype", "shared", "mask", "causal"),
    [*few(CASES, 2), *((*kind, "of each head", True) for kind in FURTHER)],
)
def test_outputs_and_gradients_are_those_of_the_mask_that_is_drawn(
    way: str, dtype: str, shared: int, mask: str, causal: bool, kernel: None
) -> None:
    random, shape = np.random.default_rng(0), MASKS[mask]
    lets = None
    if shape is not None:
        through = random.random(shape) < 0.7
        through[-1, :, min(5, shape[2] - 1)] = False  # a query, or all of a sample, that sees nothing
        lets = tf.constant(through)
    sizes = (2, 16, 4, 8), (2, 24, shared, 8), (2, 24, shared, 8), (2, 16, 4, 8)
    *operands, upstream = (tf.cast(tf.constant(random.normal(size=size)), dtype) for size in sizes)
    seed = tf.constant([5, 9], tf.uint32)
    stays = hashed.kept(seed, [2, 4, 16, 24], RATE)
    assert not np.asarray(stays).all(axis=-1).all()
    wide = [tf.cast(each, tf.float32) for each in operands]
    exact = _gradients(lambda *given: _exact(*given, lets, stays, 0.3, causal), wide, upstream, compiled=False)

    def attend(*given: Any) -> Any:
        return getattr(attention_dropout, way)(*given, lets, seed, rate=RATE, scale=0.3, causal=causal)

    near = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    for mine, theirs in zip(_gradients(attend, operands, upstream, compiled=True), exact, strict=True):
        assert np.linalg.norm(mine - theirs) < near * np.linalg.norm(theirs)


@pytest.mark.parametrize(("size", "masked"), [(8, True), (12, True), (12, False)])
def test_odd_lengths_and_sizes_are_filled_up_for_the_kernel(size: int, masked: bool, kernel: None) -> None:
    random, queries, keys = np.random.default_rng(0), 15, 23
    lets = None
    if masked:
        through = random.random((2, 1, queries, keys)) < 0.7
        through[-1, :, -1] = False
        lets = tf.constant(through)
    sizes = [(2, length, 4, size) for length in (queries, keys, keys, queries)]
    *operands, upstream = (tf.cast(tf.constant(random.normal(size=each)), "bfloat16") for each in sizes)
    seed, even = tf.constant([5, 9], tf.uint32), [2, 4, 16, 24] if masked else [2, 4, queries, keys]
    stays = hashed.kept(seed, even, RATE)[:, :, :queries, :keys]
    wide = [tf.cast(each, tf.float32) for each in operands]
    exact = _gradients(lambda *given: _exact(*given, lets, stays, 0.3, False), wide, upstream, compiled=False)

    def attend(*given: Any) -> Any:
        return attention_dropout.fused(*given, lets, seed, rate=RATE, scale=0.3, causal=False)

    for mine, theirs in zip(_gradients(attend, operands, upstream, compiled=False), exact, strict=True):
        assert mine.shape == theirs.shape and np.linalg.norm(mine - theirs) < 2e-2 * np.linalg.norm(theirs)


def test_a_query_of_which_no_score_is_kept_comes_to_zero(kernel: None) -> None:
    operands = [tf.cast(tf.random.stateless_normal((1, 64, 2, 8), (i, 1)), tf.bfloat16) for i in range(4)]
    seed = tf.constant([3, 4], tf.uint32)
    seen = np.tril(hashed.kept(seed, [1, 2, 64, 64], 0.75)).any(axis=-1)[0].T  # (queries, heads)
    assert not seen.all()
    for way in (attention_dropout.fused, attention_dropout.by_xla):

        def attend(*given: Any, way: Any = way) -> Any:
            return way(*given, None, seed, rate=0.75, scale=0.3, causal=True)

        made = _gradients(attend, operands[:3], operands[3], compiled=True)
        assert all(np.isfinite(each).all() for each in made)
        assert (made[0][0][~seen] == 0).all() and (made[0][0][seen] != 0).any()


LAYERS = {
    "of heads": partial(keras.layers.MultiHeadAttention, 4, 8, dropout=RATE, seed=1),
    "of groups": partial(keras.layers.GroupQueryAttention, 8, 4, 2, dropout=RATE, seed=1),
}
CALLS: list[dict[str, Any]] = [{}, {"use_causal_mask": True}, {"attention_mask": np.tri(16, 16, 3, bool)[None]}]


def _model(kind: str, **call: Any) -> Any:
    keras.utils.set_random_seed(2)
    inputs, layer = keras.Input((16, 32)), LAYERS[kind]()
    return keras.Model(inputs, layer(inputs, inputs, **call)), layer


def _trained(model: Any, x: Any, form: bool) -> list[np.ndarray]:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with layers.forms(model) if form else nullcontext(), hashed.dropout(), tf.GradientTape() as tape:
            y = model(x, training=True)
            total = tf.reduce_sum(tf.square(y))
        return [y, *tape.gradient(total, model.trainable_variables)]

    return [np.asarray(each) for each in run(x)]


@pytest.mark.parametrize(("call", "kind"), few(product(CALLS, LAYERS)))
def test_kerass_layers_train_so_as_by_kerass_own_way_of_the_same_seed(
    kind: str, call: dict[str, Any], kernel: None
) -> None:
    """Their scores lie alike, (batch, heads, queries, keys), so that the same hash drops the same."""
    model, layer = _model(kind, **call)
    x = np.random.default_rng(0).normal(size=(3, 16, 32)).astype(np.float32)
    state = layer._dropout_layer.seed_generator.state
    before = state.numpy()
    mine = _trained(model, x, form=True)
    after = state.numpy()
    state.assign(before)
    theirs = _trained(model, x, form=False)
    np.testing.assert_array_equal(after, before + [0, 1])
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * max(1, np.abs(other).max()))
    state.assign(before + [0, 1])
    assert np.abs(_trained(model, x, form=True)[0] - mine[0]).max() > 0.01


PADDING = np.arange(16)[None, None] < np.array([16, 9, 1])[:, None, None]
HIDING = [  # layer, a mask whose values tracing does not know, whether the layer hides later keys: then the kernel does
    ("of heads", PADDING, True),
    ("of groups", PADDING[..., ::-1], True),  # the first queries see nothing
    ("of heads", PADDING, False),
    ("of groups", PADDING & np.tri(16, 16, 1, bool), False),
]


@pytest.mark.parametrize(("kind", "mask", "causal"), HIDING)
def test_a_mask_that_also_hides_later_keys_makes_the_kernel_causal(
    kind: str, mask: Any, causal: bool, kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel then skips half of the scores."""
    called: list[Any] = []

    def forward(operands: Any, bias: Any, scale: float, is_causal: bool, dropout: Any) -> list[Any]:
        called.append((is_causal, len(bias)))
        return Kernel.forward(operands, bias, scale, is_causal, dropout)

    monkeypatch.setattr(cudnn_dropout, "forward", forward)
    keras.utils.set_random_seed(2)
    inputs, lets = keras.Input((16, 32)), keras.Input(mask.shape[1:], dtype="bool")
    layer = LAYERS[kind](dtype="mixed_bfloat16", use_bias=False)  # the gradient of a key's bias is rounding alone
    model = keras.Model([inputs, lets], layer(inputs, inputs, attention_mask=lets, use_causal_mask=causal))
    given = [tf.random.stateless_normal((3, 16, 32), (1, 2)), tf.constant(mask)]
    state = layer._dropout_layer.seed_generator.state
    before = state.numpy()
    mine = _trained(model, given, form=True)
    state.assign(before)
    assert called == [(causal, 1)]
    for one, other in zip(mine, _trained(model, given, form=False), strict=True):
        one, other = one.astype(np.float32), other.astype(np.float32)
        assert np.linalg.norm(one - other) < 2e-2 * np.linalg.norm(other)


def test_what_it_has_no_form_for_stays_kerass() -> None:
    class Own(keras.layers.MultiHeadAttention):  # type: ignore[misc]
        def _compute_attention(self, *args: Any, **kwargs: Any) -> Any:
            return super()._compute_attention(*args, **kwargs)

    given = [Own(2, 8, dropout=0.1), keras.layers.MultiHeadAttention(2, 8), keras.layers.Dense(3)]
    assert [attention_dropout.drops(layer) for layer in given] == [False] * 3
    model, layer = _model("of heads")
    x = np.random.default_rng(0).normal(size=(3, 16, 32)).astype(np.float32)
    with layers.forms(model):
        assert "_compute_attention" in layer.__dict__
        y, scores = layer(x, x, return_attention_scores=True, training=True)
        np.testing.assert_allclose(layer(x, x, training=False), layer(x, x), atol=1e-6)
    assert scores.shape == (3, 4, 16, 16) and "_compute_attention" not in layer.__dict__


def test_the_call_carries_its_settings_and_keeps_its_workspace_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(stablehlo, "call_module", lambda text, *_: taken.append(text))
    monkeypatch.setattr(cudnn_dropout, "workspace_bytes", lambda *_, **__: 256)
    dropout = cudnn_dropout.Dropout(0.1, tf.zeros([1], tf.int64))
    cudnn_dropout.forward([tf.zeros((2, 8, 4, 16), tf.bfloat16)] * 3, [], 0.125, True, dropout)
    (text,) = taken
    assert "scale = 1.250000000e-01 : f32" in text and "is_causal = 1 : i64" in text
    assert "tensor<256xui8>" in text and "return %made#0, %made#1 : tensor<2x8x4x16xbf16>, tensor<2x4x8xf32>" in text


@on_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_a_gpu_what_is_dropped_there_is_dropped_on_the_way_back(causal: bool, masked: bool, dtype: str) -> None:
    """Scores that are all alike and values that tell the keys apart show which were dropped; the mask depends on the
    seed and on nothing else."""
    random, size = np.random.default_rng(0), 64
    shape = (2, size, 4, size)
    lets = tf.constant(random.random((2, 1, size, size)) < 0.7) if masked else None
    seed = tf.constant([123456789, 12], tf.uint32)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def fused(query: Any, key: Any, value: Any, upstream: Any, mask: Any, causal: bool) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            out = attention_dropout.fused(query, key, value, mask, seed, rate=RATE, scale=size**-0.5, causal=causal)
        return [out, *tape.gradient(out, [query, key, value], upstream)]

    nothing, each = tf.zeros(shape, dtype), tf.cast(tf.eye(size), dtype)[tf.newaxis, :, tf.newaxis]
    apart = fused(nothing, nothing, tf.broadcast_to(each, shape), nothing, None, False)[0]
    kept = tf.cast(tf.transpose(apart, [0, 2, 1, 3]) > 0, tf.float32)
    assert abs(float(tf.reduce_mean(kept)) - (1 - RATE)) < 0.02
    query, key, value, upstream = (tf.cast(tf.constant(random.normal(size=shape)), dtype) for _ in range(4))
    exact = [tf.cast(each, tf.float32) for each in (query, key, value)]
    with tf.GradientTape() as tape:
        tape.watch(exact)
        scores = tf.einsum("btnh,bsnh->bnts", *exact[:2]) * size**-0.5
        seen = tf.ones_like(scores, tf.bool) if lets is None else tf.broadcast_to(lets, scores.shape)
        if causal:
            seen = tf.logical_and(seen, tf.linalg.band_part(tf.ones((size, size), tf.bool), -1, 0))
        weights = tf.nn.softmax(tf.where(seen, scores, -1e30)) * tf.cast(seen, tf.float32) * kept / (1 - RATE)
        out = tf.einsum("bnts,bsnh->btnh", weights, exact[2])
    want = [out, *tape.gradient(out, exact, tf.cast(upstream, tf.float32))]
    for mine, theirs in zip(fused(query, key, value, upstream, lets, causal), want, strict=True):
        assert np.linalg.norm(tf.cast(mine, tf.float32) - theirs) < 2e-2 * np.linalg.norm(theirs)
