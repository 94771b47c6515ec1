"""Cross-entropy over a head in halves of its rows: the losses and weights of the whole head, and half the logits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import choice, forms, halves, padded_products, wide
from ringscope.ring.step import retrace
from tests.tiers import few

WORDS, LENGTH, WIDTH = 42, 9, 24
PADDED = 48  # the next multiple of 8 of the words


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wide, "is_tf32", lambda: True)
    monkeypatch.setattr(padded_products, "LEAST", 0)
    monkeypatch.setattr(halves, "LEAST", 0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


LOSSES: dict[str, Any] = {
    "mean": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "sum": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
    "some ignored": keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
    "of one's own": lambda y, p: keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True),
}


def _smoothed(y: Any, p: Any) -> Any:
    """As translators are trained: labels smoothed over all words, and no loss of padding."""
    sought = keras.ops.one_hot(y, WORDS if p.shape[-1] == WORDS else PADDED)
    each = keras.losses.categorical_crossentropy(sought, p, from_logits=True, label_smoothing=0.1)
    counts = keras.ops.cast(keras.ops.not_equal(y, 0), each.dtype)
    return keras.ops.sum(each * counts) / keras.ops.sum(counts)


def _with_the_size_of_logits(y: Any, p: Any) -> Any:
    each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    return each + 1e-3 * keras.ops.square(keras.ops.logsumexp(p, axis=-1))


LOSSES |= {"smoothed": _smoothed, "that reads again": _with_the_size_of_logits}


class OwnStep(keras.Model):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def _model(
    loss: str = "mean", *, words: int = WORDS, bias: bool = False, kind: Any = keras.Model, metrics: Any = None
) -> Any:
    keras.utils.set_random_seed(7)
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(WORDS, WIDTH, mask_zero=True)(inputs)
    x = keras.layers.LayerNormalization()(keras.layers.Dense(WIDTH, activation="gelu")(x))
    logits = keras.layers.Dense(words, use_bias=bias, dtype="float32", bias_initializer="random_normal")(x)
    model = kind(inputs, logits)
    rate = 0.01 if loss == "sum" else 0.5
    model.compile(keras.optimizers.SGD(rate), LOSSES[loss], weighted_metrics=metrics, jit_compile=True)
    return model


def _batch(samples: int) -> tuple[np.ndarray, np.ndarray]:
    words = np.random.default_rng(0).integers(0, WORDS, (samples, LENGTH + 1), np.int32)
    return words[:, :-1], words[:, 1:]


def _trained(model: Any, samples: int, weights: np.ndarray | None) -> list[np.ndarray]:
    """The loss of each of four steps, and what they have made of the weights."""
    data = [*_batch(samples), *([] if weights is None else [weights])]
    with forms(model):
        losses = [model.train_on_batch(*data) for _ in range(4)]
    return [np.asarray(losses), *model.get_weights()]


def _rows_of_logits(model: Any, samples: int) -> list[int]:
    """The number of rows of each product that makes logits, as XLA is given a step without what it does not use."""
    x, y = map(tf.constant, _batch(samples))

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any, y: Any) -> Any:
        with forms(model), tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    text = run.experimental_get_compiler_ir(x, y)(stage="optimized_hlo")
    return sorted(int(rows) for rows in re.findall(rf"f32\[(\d+),{PADDED}\]\S* dot\(", text) if int(rows) != WIDTH)


WITH = {"words": PADDED, "bias": True}
CASES: list[Any] = [
    ("some ignored", 5, True, WITH),
    ("sum", 8, False, {}),
    ("mean", 8, True, {}),
    ("mean", 5, False, WITH),
    ("of one's own", 8, True, {}),
    ("smoothed", 5, False, WITH),
    ("smoothed", 8, False, {}),
]


@pytest.mark.parametrize(("loss", "samples", "weighted", "head"), few(CASES))
def test_a_model_trains_to_the_same_weights(
    monkeypatch: pytest.MonkeyPatch, loss: str, samples: int, weighted: bool, head: dict[str, Any]
) -> None:
    rows = samples * LENGTH
    weights = np.random.default_rng(1).random((samples, LENGTH)) if weighted else None
    assert _rows_of_logits(_model(loss, **head), samples) == [rows // 2, rows - rows // 2]
    halved = _trained(_model(loss, **head), samples, weights)
    monkeypatch.setenv(choice.WITHOUT, "halves")
    assert _rows_of_logits(_model(loss, **head), samples) == [rows]
    for own, right in zip(halved, _trained(_model(loss, **head), samples, weights), strict=True):
        # TensorFlow's own gradient of smoothed labels is rounded otherwise, which four steps of bfloat16 enlarge
        np.testing.assert_allclose(own, right, rtol=1e-3, atol=2e-3 if loss == "smoothed" else 1e-4)


@pytest.mark.parametrize("way", few([{"metrics": ["accuracy"]}, {"kind": OwnStep}]), ids=str)
def test_a_head_whose_logits_have_other_readers_is_left_whole(way: dict[str, Any]) -> None:
    model = _model(**way)
    assert not halves.one_loss_reads_logits(model)
    assert _rows_of_logits(model, 8) == [8 * LENGTH]


def test_a_head_with_a_bias_and_padded_classes_is_left_whole() -> None:
    assert _rows_of_logits(_model(bias=True), 8) == [8 * LENGTH]


def test_a_loss_that_reads_the_logits_again_is_an_error_of_this_form() -> None:
    """So that the step is traced again without it."""
    model, (x, y) = _model("that reads again"), _batch(8)
    with pytest.raises(halves.ReadAgain) as raised, forms(model):
        model.train_on_batch(x, y)
    assert retrace._raising(raised.value.__traceback__) == "halves"


def test_another_error_comes_through() -> None:
    with pytest.raises(ZeroDivisionError), forms(_model("that reads again")):
        _ = 1 / 0
