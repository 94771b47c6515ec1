"""Cross-entropy that reads its logits less often, against TensorFlow's own in XLA and against 64-bit arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import entropy, forms
from tests.tiers import few

CLASSES = 50
TENSORFLOWS = tf.nn.sparse_softmax_cross_entropy_with_logits


def _loss_and_gradient(
    entropy_of: Callable[..., Any], labels: np.ndarray, logits: Any, weights: np.ndarray
) -> list[np.ndarray]:
    """The loss of each row, and the gradient of their weighted sum, compiled by XLA."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(logits: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = entropy_of(labels=tf.constant(labels), logits=tf.cast(logits, tf.float32))
            total = tf.reduce_sum(losses * tf.constant(weights, tf.float32))
        return losses, tape.gradient(total, logits)

    return [np.asarray(tf.cast(each, tf.float64)) for each in run(logits)]


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(labels, logits, weights): logits that lie close together and ones that lie far apart."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(8, 6, CLASSES)) * np.geomspace(0.01, 40, 8)[:, None, None]
    return random.integers(0, CLASSES, (8, 6)), logits, random.random((8, 6))


@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 1e-6), ("bfloat16", 2**-8), ("float16", 2**-10)])
def test_loss_and_gradient_are_those_of_64_bit_arithmetic(rows: Any, dtype: str, rounding: float) -> None:
    labels, logits, weights = rows
    given = tf.cast(tf.constant(logits), dtype)
    exact = np.asarray(tf.cast(given, tf.float64))
    total = np.log(np.exp(exact - exact.max(-1, keepdims=True)).sum(-1)) + exact.max(-1)
    share = np.exp(exact - total[..., None])
    is_label = np.arange(CLASSES) == labels[..., None]
    loss, gradient = _loss_and_gradient(entropy.of_labels, labels, given, weights)
    np.testing.assert_allclose(loss, total - exact[is_label].reshape(labels.shape), rtol=2e-6, atol=2e-5)
    np.testing.assert_allclose(gradient, (share - is_label) * weights[..., None], rtol=rounding * 2, atol=rounding / 50)


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_tensorflows_own_name_gives_its_numbers_while_it_lasts(rows: Any, kind: str) -> None:
    labels, logits, weights = rows
    given = tf.constant(logits, tf.float32)
    kinds = "int64" if kind == "uint8" else kind  # TensorFlow's own takes no others
    theirs = _loss_and_gradient(TENSORFLOWS, labels.astype(kinds), given, weights)
    with entropy.short():
        ours = _loss_and_gradient(tf.nn.sparse_softmax_cross_entropy_with_logits, labels.astype(kind), given, weights)
    for own, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-5)
    assert tf.nn.sparse_softmax_cross_entropy_with_logits is TENSORFLOWS


def test_a_label_that_is_no_class_and_logits_that_are_not_finite_end_as_in_tensorflow() -> None:
    random = np.random.default_rng(1)
    logits = random.normal(size=(6, CLASSES))
    logits[2, 3], logits[3, :], logits[4, 5], logits[5, 7:] = np.inf, -np.inf, np.nan, -np.inf
    labels, ones = np.array([2**32 + 1, -1, 0, 0, 0, 4]), np.ones(6)
    given = tf.constant(logits, tf.float32)
    theirs = _loss_and_gradient(TENSORFLOWS, labels, given, ones)
    with entropy.short():
        ours = _loss_and_gradient(tf.nn.sparse_softmax_cross_entropy_with_logits, labels, given, ones)
    assert [bool(np.isnan(row).all()) for row in ours[1]] == [True] * 5 + [False]
    for own, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.isnan(own).reshape(6, -1).any(-1), np.isnan(right).reshape(6, -1).any(-1))
    np.testing.assert_allclose(ours[1][5], theirs[1][5], atol=1e-6)


@pytest.mark.parametrize("logits", [tf.zeros((2, 3), tf.float64), tf.zeros((2, 3), tf.bfloat16)])
def test_other_types_are_left_to_tensorflow(logits: Any) -> None:
    with entropy.short():
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant([0, 2]), logits)
    assert loss.dtype == logits.dtype
    np.testing.assert_array_equal(loss, TENSORFLOWS(tf.constant([0, 2]), logits))


def test_labels_of_another_shape_are_refused_as_ever() -> None:
    with entropy.short(), pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.nn.sparse_softmax_cross_entropy_with_logits(tf.zeros((3, 1), tf.int32), tf.zeros((3, 4, 5)))


LOSSES: dict[str, Callable[[], Any]] = {
    "of logits": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "some ignored": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
    "by name, behind a softmax": lambda: "sparse_categorical_crossentropy",
    "of one's own": lambda: (
        lambda y, p: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), tf.cast(p, tf.float32))
    ),
}


@pytest.mark.parametrize(
    ("loss", "policy"),
    [
        *few(((loss, "float32") for loss in LOSSES), 4),
        ("of logits", "mixed_bfloat16"),
        *(pytest.param(loss, "mixed_bfloat16", marks=pytest.mark.exhaustive) for loss in LOSSES if loss != "of logits"),
    ],
)
def test_a_model_trains_to_the_same_weights_without_kept_probabilities(loss: str, policy: str) -> None:
    random = np.random.default_rng(2)
    x, y = random.normal(size=(32, 4, 16)).astype("float32"), random.integers(0, CLASSES, (32, 4))
    rtol, atol = (1e-5, 1e-6) if policy == "float32" else (1e-2, 1e-3)
    weights = {}
    for short in (False, True):
        keras.utils.set_random_seed(5)
        last = keras.layers.Dense(CLASSES, activation="softmax" if "softmax" in loss else None, dtype=policy)
        model = keras.Sequential([keras.Input((4, 16)), keras.layers.Dense(24, dtype=policy), last])
        model.compile(keras.optimizers.SGD(0.5), LOSSES[loss](), jit_compile=True)
        with forms(model) if short else nullcontext():
            model.fit(x, y, batch_size=32, epochs=4, shuffle=False, verbose=0)
        weights[short] = model.get_weights()
    for own, right in zip(weights[True], weights[False], strict=True):
        np.testing.assert_allclose(own, right, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("on", "off"), [(1.0, 0.0), (0.902, 0.002), (0.7, 0.1)])
def test_of_smoothed_labels_it_is_tensorflows(rows: Any, on: float, off: float) -> None:
    """Also where the shares of a row do not sum to 1, and of a label that is no class."""
    labels, logits, weights = (each.reshape(-1, *each.shape[2:]) for each in rows)
    labels[:2] = -1, CLASSES
    given = tf.constant(logits, tf.float32)

    def ours(labels: Any, logits: Any) -> Any:
        return entropy.of_one_hot(labels, tf.constant(on), tf.constant(off), logits)

    def theirs(labels: Any, logits: Any) -> Any:
        return tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(labels, CLASSES, on, off), logits)

    def exact() -> list[np.ndarray]:
        wide = logits.astype(np.float32).astype(np.float64)
        log_share = wide - wide.max(-1, keepdims=True)
        log_share -= np.log(np.exp(log_share).sum(-1, keepdims=True))
        shares = np.where(np.arange(CLASSES) == labels[:, None], on, off)
        return [-(shares * log_share).sum(-1), (np.exp(log_share) - shares) * weights[:, None]]

    made = _loss_and_gradient(ours, labels, given, weights)
    for own, other, right in zip(made, _loss_and_gradient(theirs, labels, given, weights), exact(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-5)
