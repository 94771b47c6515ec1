"""Attention that drops scores, in both ways, against float32's with the same mask; cuDNN's kernel by its formulas."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from harness.ring.forms import attention, attention_hashed, hashed, layers

RATE = 0.25


def _call(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    """The kernel's output, and the logarithm of each sum of exponentials (batch, heads, queries)."""
    query, key, value, *bias = operands
    scores = _scores(query, key, bias, scale, causal)
    every = tf.reduce_logsumexp(scores, axis=-1)
    share = tf.cast(tf.exp(scores - every[..., tf.newaxis]), query.dtype)
    return [tf.einsum("bnts,bsnh->btnh", share, _shared(value, query)), every]


def _call_back(operands: list[Any], scale: float, causal: bool) -> list[Any]:
    """As the kernel has it: shares from the statistics that it is given, sums of rows from the output that it is."""
    query, key, value, every, upstream, *bias, out = operands
    scores = _scores(query, key, bias, scale, causal)
    share = tf.exp(scores - every[..., tf.newaxis])
    up, out, wide = (tf.cast(each, tf.float32) for each in (upstream, out, _shared(value, query)))
    through = tf.einsum("btnh,bsnh->bnts", up, wide) - tf.einsum("btnh,btnh->bnt", up, out)[..., tf.newaxis]
    through = tf.cast(share * through * scale, query.dtype)
    of_value = tf.einsum("bnts,btnh->bsnh", tf.cast(share, query.dtype), upstream)
    of_key = tf.einsum("bnts,btnh->bsnh", through, query)
    of_query = tf.einsum("bnts,bsnh->btnh", through, _shared(key, query))
    return [of_query, *(_joined(each, key.shape[2]) for each in (of_key, of_value))]


def _scores(query: Any, key: Any, bias: list[Any], scale: float, causal: bool) -> Any:
    query, key, *bias = (tf.cast(each, tf.float32) for each in (query, _shared(key, query), *bias))
    scores = tf.einsum("btnh,bsnh->bnts", query, key) * scale + sum(bias)
    earlier = tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, 0)
    return tf.where(earlier, scores, -1e30) if causal else scores


def _shared(each: Any, query: Any) -> Any:
    return tf.repeat(each, query.shape[2] // each.shape[2], axis=2)


def _joined(each: Any, heads: int) -> Any:
    """The sum over the query's heads that share one."""
    batch, length, all_heads, size = each.shape
    return tf.reduce_sum(tf.reshape(each, [batch, length, heads, all_heads // heads, size]), axis=3)


def _exact(query: Any, key: Any, value: Any, mask: Any, stays: Any, scale: float, causal: bool) -> Any:
    """In the types that it is given: the softmax over what the mask lets through, and zeros where a score is dropped.
    A query that sees nothing sees all keys alike."""
    scores = tf.einsum("btnh,bsnh->bnts", query, _shared(key, query)) * scale
    lets = tf.ones(scores.shape, tf.bool) if mask is None else tf.broadcast_to(mask, scores.shape)
    if causal:
        lets = tf.logical_and(lets, tf.linalg.band_part(tf.ones(scores.shape[2:], tf.bool), -1, 0))
    share = tf.nn.softmax(tf.where(lets, scores, -1e30))
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


KINDS = [("by_xla", "float32", 4), ("twice", "bfloat16", 4)]
FURTHER = [("by_xla", "bfloat16", 2), ("twice", "float16", 2)]
CASES = [(*kind, mask, causal) for kind in KINDS for mask in MASKS for causal in (False, True)]
CASES += [(*kind, "of each head", True) for kind in FURTHER]


@pytest.mark.parametrize(("way", "dtype", "shared", "mask", "causal"), CASES)
def test_outputs_and_gradients_are_those_of_the_mask_that_is_drawn(
    way: str, dtype: str, shared: int, mask: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "forward", _call)
    monkeypatch.setattr(attention, "backward", _call_back)
    random, shape = np.random.default_rng(0), MASKS[mask]
    lets = None
    if shape is not None:
        through = random.random(shape) < 0.7
        through[-1, :, min(5, shape[2] - 1)] = False  # a query, or all of a sample, that sees nothing
        lets = tf.constant(through)
    sizes = (2, 16, 4, 8), (2, 24, shared, 8), (2, 24, shared, 8), (2, 16, 4, 8)
    *operands, upstream = (tf.cast(tf.constant(random.normal(size=size)), dtype) for size in sizes)
    seed = tf.constant([5, 9], tf.int64)
    stays = hashed.kept(seed, [2, 4, 16, 24], RATE)
    assert not np.asarray(stays).all(axis=-1).all()
    wide = [tf.cast(each, tf.float32) for each in operands]
    exact = _gradients(lambda *given: _exact(*given, lets, stays, 0.3, causal), wide, upstream, compiled=False)

    def attend(*given: Any) -> Any:
        return getattr(attention_hashed, way)(*given, lets, seed, rate=RATE, scale=0.3, causal=causal)

    near = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    for mine, theirs in zip(_gradients(attend, operands, upstream, compiled=True), exact, strict=True):
        assert np.linalg.norm(mine - theirs) < near * np.linalg.norm(theirs)


def test_a_query_of_which_no_score_is_kept_comes_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "forward", _call)
    monkeypatch.setattr(attention, "backward", _call_back)
    operands = [tf.cast(tf.random.stateless_normal((1, 64, 2, 8), (i, 1)), tf.bfloat16) for i in range(4)]
    seed = tf.constant([3, 4], tf.int64)
    seen = np.tril(hashed.kept(seed, [1, 2, 64, 64], 0.75)).any(axis=-1)[0].T  # (queries, heads)
    assert not seen.all()
    for way in (attention_hashed.twice, attention_hashed.by_xla):

        def attend(*given: Any, way: Any = way) -> Any:
            return way(*given, None, seed, rate=0.75, scale=0.3, causal=True)

        made = _gradients(attend, operands[:3], operands[3], compiled=True)
        assert all(np.isfinite(each).all() for each in made)
        assert (made[0][0][~seen] == 0).all() and (made[0][0][seen] != 0).any()


LAYERS = {
    "of heads": lambda: keras.layers.MultiHeadAttention(4, 8, dropout=RATE, seed=1),
    "of groups": lambda: keras.layers.GroupQueryAttention(8, 4, 2, dropout=RATE, seed=1),
}


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


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("call", [{}, {"use_causal_mask": True}, {"attention_mask": np.tri(16, 16, 3, bool)[None]}])
def test_kerass_layers_train_so_as_by_kerass_own_way_of_the_same_seed(kind: str, call: dict[str, Any]) -> None:
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


def test_what_it_has_no_form_for_stays_kerass() -> None:
    class Own(keras.layers.MultiHeadAttention):  # type: ignore[misc]
        def _compute_attention(self, *args: Any, **kwargs: Any) -> Any:
            return super()._compute_attention(*args, **kwargs)

    given = [Own(2, 8, dropout=0.1), keras.layers.MultiHeadAttention(2, 8), keras.layers.Dense(3)]
    assert [attention_hashed.drops(layer) for layer in given] == [False] * 3
    model, layer = _model("of heads")
    x = np.random.default_rng(0).normal(size=(3, 16, 32)).astype(np.float32)
    with layers.forms(model):
        assert "_compute_attention" in layer.__dict__
        y, scores = layer(x, x, return_attention_scores=True, training=True)
        np.testing.assert_allclose(layer(x, x, training=False), layer(x, x), atol=1e-6)
    assert scores.shape == (3, 4, 16, 16) and "_compute_attention" not in layer.__dict__
