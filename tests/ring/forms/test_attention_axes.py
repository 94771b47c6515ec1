"""Attention over axes of a map: one attention over the attended axes, equal to Keras's."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import attention_axes, hashed, layers
from tests.tiers import few

# The shape of queries (batch, axes, features), of keys and values, and the attended axes.
CASES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]] = [
    ((2, 4, 9, 16), (2, 4, 9, 16), None),
    ((2, 3, 5, 16), (2, 2, 7, 12), None),
    ((2, 3, 5, 16), (2, 3, 7, 16), (2,)),
    ((2, 5, 3, 16), (2, 4, 3, 16), (1,)),
    ((2, 3, 2, 5, 16), (2, 4, 2, 3, 16), (1, 3)),
]


def _trained(layer: Any, query: Any, seen: Any, form: bool, **how: Any) -> list[np.ndarray]:
    """Outputs, and the gradients of queries, keys and weights."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(query: Any, seen: Any) -> Any:
        with tf.GradientTape() as tape, hashed.dropout(), layers.forms(net) if form else nullcontext():
            tape.watch([query, seen])
            made = layer(query, seen, **how)
            total = tf.reduce_sum(tf.square(tf.cast(made, tf.float32)))
        return [made, *tape.gradient(total, [query, seen, *layer.trainable_variables])]

    net = keras.Sequential([layer])
    return [np.asarray(tf.cast(each, tf.float32)) for each in run(query, seen)]


def _given(shape: tuple[int, ...], of_keys: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [tf.constant(random.normal(size=each).astype(np.float32)) for each in (shape, of_keys)]


def _layer(along: tuple[int, ...] | None, policy: str, given: list[Any], **how: Any) -> Any:
    keras.utils.set_random_seed(1)
    layer = keras.layers.MultiHeadAttention(2, 8, value_dim=6, attention_axes=along, dtype=policy, **how)
    layer(*given)
    return layer


@pytest.mark.parametrize(
    ("case", "policy", "training"),
    few([(c, p, t) for c in CASES for p in ("float32", "mixed_bfloat16") for t in (False, True)], 4),
)
def test_it_is_kerass_attention(case: Any, policy: str, training: bool) -> None:
    shape, of_keys, along = case
    given = _given(shape, of_keys)
    layer = _layer(along, policy, given, use_bias=False)  # keys' biases change nothing, so their gradients are noise
    assert attention_axes.has_others(layer)
    near = 1e-5 if policy == "float32" else 3e-2
    exact = _trained(_layer(along, "float32", given, use_bias=False), *given, form=False, training=training)
    for mine, theirs in zip(_trained(layer, *given, form=True, training=training), exact, strict=True):
        assert mine.shape == theirs.shape
        assert np.linalg.norm(mine - theirs) <= near * np.linalg.norm(theirs)


@pytest.mark.parametrize("case", few((case,) for case in CASES))
def test_dropped_scores_are_a_share_of_all_and_change_no_mean(case: Any) -> None:
    """Values of one in each place: an output is the sum of the shares that are kept, larger by 1 / (1 - rate)."""
    shape, of_keys, along = case
    given = _given((64, *shape[1:]), (64, *of_keys[1:]))
    layer = _layer(along, "float32", given, dropout=0.25)
    layer.value_dense.kernel.assign(tf.zeros_like(layer.value_dense.kernel))
    layer.value_dense.bias.assign(tf.ones_like(layer.value_dense.bias))
    layer.output_dense.kernel.assign(tf.ones_like(layer.output_dense.kernel) / 12)
    one, other = (_trained(layer, *given, form=True, training=True)[0] for _ in range(2))
    assert abs(one.mean() - 1) < 0.03 and one.std() > 0.05
    assert np.abs(one - other).max() > 0.1  # another mask in each step
    np.testing.assert_allclose(_trained(layer, *given, form=True, training=False)[0], 1, atol=1e-5)


def test_a_mask_or_asked_scores_leave_kerass_own() -> None:
    shape, of_keys, along = CASES[0]
    given = _given(shape, of_keys)
    layer = _layer(along, "float32", given)
    mask = tf.constant(np.random.default_rng(1).random((2, 4, 9, 4, 9)) < 0.7)
    for mine, theirs in zip(
        *(_trained(layer, *given, form=form, attention_mask=mask) for form in (True, False)), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    with layers.forms(keras.Sequential([layer])):
        made, scores = layer(*given, return_attention_scores=True)
    assert made.shape == (2, 4, 9, 16) and scores.shape == (2, 2, 4, 9, 4, 9)


def test_attention_of_one_axis_is_not_this_form() -> None:
    given = _given((2, 5, 16), (2, 7, 16))
    assert not attention_axes.has_others(_layer(None, "float32", given))
    assert not attention_axes.has_others(keras.layers.MultiHeadAttention(2, 8))
