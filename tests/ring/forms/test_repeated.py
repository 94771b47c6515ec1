"""Heads of keys that are repeated for groups of queries reach attention's kernel once, and train as written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from ringscope.ring.forms import attention, hashed, repeated, written
from tests.ring.forms.test_attention import _kernel, _kernel_back
from tests.tiers import few

BATCH, LENGTH, SHARED, GROUP, SIZE = 2, 6, 3, 2, 8
HEADS = SHARED * GROUP


def by_repeat(x: Any) -> Any:
    return ops.repeat(x, GROUP, axis=2)


def with_heads_first(x: Any) -> Any:
    """As Hugging Face's `repeat_kv`."""
    x = ops.transpose(x, (0, 2, 1, 3))
    x = ops.broadcast_to(x[:, :, None], (BATCH, SHARED, GROUP, LENGTH, SIZE))
    return ops.transpose(ops.reshape(x, (BATCH, HEADS, LENGTH, SIZE)), (0, 2, 1, 3))


def by_tile(x: Any) -> Any:
    return tf.reshape(tf.tile(x[:, :, :, None], [1, 1, 1, GROUP, 1]), [BATCH, LENGTH, HEADS, SIZE])


def cast_afterwards(x: Any) -> Any:
    return ops.cast(ops.repeat(ops.cast(x, "float32"), GROUP, axis=2), "bfloat16")


def heads_in_turn(x: Any) -> Any:
    return tf.tile(x, [1, 1, GROUP, 1])


def joined_with_another_axis(x: Any) -> Any:
    wide = tf.tile(x[:, :, :, None], [1, 1, 1, GROUP, 1])
    return tf.reshape(wide, [BATCH, LENGTH * SHARED, GROUP, SIZE])[:, ::SHARED]


def along_positions(x: Any) -> Any:
    """Each position twice, and as many heads as there were."""
    return ops.repeat(x, GROUP, axis=1)


ONCE = [by_repeat, with_heads_first, by_tile, cast_afterwards]
NOT = [heads_in_turn, joined_with_another_axis, along_positions]


def _traced(function: Callable[..., Any], *given: Any) -> Any:
    return tf.nest.map_structure(np.asarray, tf.function(function, autograph=False)(*given))


def _drawn(*shape: int, seed: int = 1) -> Any:
    return tf.cast(tf.random.stateless_normal(shape, (seed, 2)), tf.bfloat16)


@pytest.mark.parametrize("way", [*ONCE, *NOT])
def test_heads_are_known_before_they_were_repeated(way: Callable[[Any], Any]) -> None:
    x = _drawn(BATCH, LENGTH, SHARED, SIZE)

    def both(x: Any) -> Any:
        made = way(x)
        return made, *repeated.once(made, made)

    made, key, value = _traced(both, x)
    np.testing.assert_array_equal(key, x if way in ONCE else made)
    np.testing.assert_array_equal(value, key)


def test_a_key_or_a_value_alone_stays_repeated() -> None:
    x = _drawn(BATCH, LENGTH, SHARED, SIZE)
    for ways in ((by_repeat, heads_in_turn), (heads_in_turn, by_repeat)):
        key, value = _traced(lambda x, ways=ways: repeated.once(*(way(x) for way in ways)), x)
        assert key.shape == value.shape == (BATCH, LENGTH, HEADS, SIZE)


def test_an_eager_tensor_stays_as_it_is() -> None:
    x = by_repeat(_drawn(BATCH, LENGTH, SHARED, SIZE))
    assert repeated.once(x, x) == (x, x)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The kernels by their definition; the number of heads of keys of each forward call."""
    heads: list[int] = []

    def forward(given: list[Any], *how: Any) -> list[Any]:
        heads.append(given[1].shape[2])
        return [tf.cast(_kernel(given, *how), given[0].dtype), None]

    def back(given: list[Any], *how: Any) -> list[Any]:
        return [tf.cast(each, given[0].dtype) for each in _kernel_back(given, *how)]

    monkeypatch.setattr(attention, "forward", forward)
    monkeypatch.setattr(attention, "backward", back)
    return heads


def _as_a_llama(query: Any, key: Any, value: Any) -> Any:
    query, key, value = (ops.transpose(each, (0, 2, 1, 3)) for each in (query, key, value))
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) / SIZE**0.5
    scores = ops.where(ops.tril(ops.ones((LENGTH, LENGTH), "bool")), scores, ops.cast(-1e9, scores.dtype))
    return ops.transpose(
        ops.matmul(ops.cast(ops.softmax(ops.cast(scores, "float32")), value.dtype), value), (0, 2, 1, 3)
    )


def _by_kerass_operation(query: Any, key: Any, value: Any) -> Any:
    return ops.dot_product_attention(query, key, value, is_causal=True)


@pytest.mark.parametrize("write", [_as_a_llama, _by_kerass_operation])
@pytest.mark.parametrize("way", few(ONCE))
def test_attention_of_repeated_heads_has_equal_values_and_gradients(
    write: Callable[..., Any], way: Callable[[Any], Any], called: list[int]
) -> None:
    given = [_drawn(BATCH, LENGTH, heads, SIZE, seed=i) for i, heads in enumerate((HEADS, SHARED, SHARED))]

    def run(attend: Callable[..., Any], *given: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            made = attend(*given)
            total = tf.reduce_sum(tf.square(tf.cast(made, tf.float32)))
        return made, *tape.gradient(total, given)

    def fused(query: Any, key: Any, value: Any) -> Any:
        with hashed.dropout(), attention.fused(), written.fused():
            return write(query, way(key), way(value))

    def exact(*given: Any) -> Any:
        query, key, value = (tf.cast(each, tf.float32) for each in given)
        return write(query, by_repeat(key), by_repeat(value))

    for mine, theirs in zip(*(_traced(partial(run, attend), *given) for attend in (fused, exact)), strict=True):
        assert mine.shape == theirs.shape
        mine, theirs = mine.astype(np.float32), theirs.astype(np.float32)
        assert np.linalg.norm(mine - theirs) < 2e-2 * np.linalg.norm(theirs)
    assert called == [SHARED]


def test_kerass_layer_of_groups_hands_each_head_once_to_the_kernel(called: list[int]) -> None:
    layer = keras.layers.GroupQueryAttention(SIZE, HEADS, SHARED, dtype="mixed_bfloat16")
    x = _drawn(BATCH, LENGTH, 16)
    layer.build(x.shape, x.shape)

    def run(x: Any) -> Any:
        with attention.fused():
            return layer(x, x, use_causal_mask=True)

    mine = _traced(run, x).astype(np.float32)
    theirs = np.asarray(layer(x, x, use_causal_mask=True)).astype(np.float32)
    assert np.linalg.norm(mine - theirs) < 2e-2 * np.linalg.norm(theirs)
    assert called == [SHARED]
