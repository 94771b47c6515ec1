"""Losses whose graphs ring cannot read, tried on made-up rows: their kinds for each type of number, and what is said of
several losses of one name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from keras import layers, ops  # noqa: E402

from ringscope.places import of_keras  # noqa: E402
from ringscope.places.laid import beneath  # noqa: E402
from ringscope.ring import say  # noqa: E402
from ringscope.ring.global_batch import added_losses, loss_kinds, train_step_losses  # noqa: E402
from ringscope.ring.internals.frameworks import defining  # noqa: E402
from tests.tiers import few  # noqa: E402

Loss = Callable[[Any, Any], Any]


@pytest.fixture
def floatx(request: pytest.FixtureRequest) -> Iterator[str]:
    before = keras.config.floatx()
    keras.config.set_floatx(request.param)
    yield request.param
    keras.config.set_floatx(before)


def positives(y: Any, p: Any) -> Any:
    return tf.cast(y > 0.3, y.dtype)


MEANS: dict[str, Loss] = {
    "squares": lambda y, p: tf.reduce_mean((y - p) ** 2),
    "sums of rows": lambda y, p: tf.reduce_mean(tf.reduce_sum(tf.abs(y - p), -1)),
    "entropy": lambda y, p: ops.mean(ops.binary_crossentropy(y, p)),
    "Huber": lambda y, p: tf.reduce_mean(keras.losses.huber(y, p)),
    "Kullback-Leibler": lambda y, p: tf.reduce_mean(tf.reduce_sum(y * tf.math.log((y + 0.01) / (p + 0.01)), -1)),
    "of both signs": lambda y, p: tf.reduce_mean((y - 0.5) * p),
    "noisy": lambda y, p: tf.reduce_mean((y + 0.01 * tf.random.normal(tf.shape(y), dtype=y.dtype) - p) ** 2),
}
SUMS: dict[str, Loss] = {
    "squares": lambda y, p: tf.reduce_sum((y - p) ** 2),
    "log cosh": lambda y, p: tf.reduce_sum(keras.losses.log_cosh(y, p)),
}
NEITHER: dict[str, Loss] = {
    "Dice": lambda y, p: 1 - (2 * tf.reduce_sum(y * p) + 1) / (tf.reduce_sum(y) + tf.reduce_sum(p) + 1),
    "by positives": lambda y, p: tf.reduce_sum((y - p) ** 2) / (tf.reduce_sum(positives(y, p)) + 1),
    "pairs": lambda y, p: tf.reduce_mean((p[:, None] - p[None]) ** 2),
}


def kind(function: Loss, shape: tuple[int, ...], dtype: str = "float32") -> str | None:
    loss = keras.src.losses.losses.LossFunctionWrapper(function)
    given = tf.zeros(shape, dtype)
    return loss_kinds._loss_kind(loss, given, given, by_itself=True)


TYPES, SHAPES = ["float32", "float16", "bfloat16", "float64"], [(16, 1), (16, 3), (16, 7, 7, 2)]
# Each type of one shape, and the others now and then.
CASES = [(kind, SHAPES[(k + more) % 3]) for k, kind in enumerate(TYPES) for more in range(3)]


@pytest.mark.parametrize(("floatx", "shape"), few(CASES), indirect=["floatx"], ids=str)
def test_the_kind_is_right_in_every_type_of_number(floatx: str, shape: tuple[int, ...]) -> None:
    for losses, right in (
        (MEANS, loss_kinds.MEAN),
        (SUMS, loss_kinds.SUM),
        (NEITHER, loss_kinds.NEITHER),
    ):
        assert {name: kind(loss, shape, floatx) for name, loss in losses.items()} == dict.fromkeys(losses, right)


@pytest.mark.parametrize("name", NEITHER)
def test_many_values_in_a_row_make_no_loss_a_mean(name: str) -> None:
    """If the rows were alike, then the halves of the batch would be too."""
    assert kind(NEITHER[name], (16, 40, 40, 1)) == loss_kinds.NEITHER


def mean_of(keep: Loss) -> Loss:
    """The mean of the squares that `keep` keeps, or 0: by `tf.cond`, which ring does not read."""

    def loss(y: Any, p: Any) -> Any:
        mask = tf.cast(keep(y, p), tf.float32)
        total, count = tf.reduce_sum(mask * (y - p) ** 2), tf.reduce_sum(mask)
        return tf.cond(count > 0, lambda: total / count, lambda: 0.0)

    return loss


KEEPS: dict[str, Loss] = {
    "labels from 0 on": lambda y, p: y >= 0,
    "labels above -1": lambda y, p: y > -1,
    "labels that are not -999": lambda y, p: y != -999,
    "rows with a label": lambda y, p: tf.reduce_any(y >= 0, axis=-1, keepdims=True) | tf.zeros_like(y, tf.bool),
    "predictions above 0.9": lambda y, p: p > 0.9,
    "predictions below 3": lambda y, p: p < 3,
    "predictions from 0 on": lambda y, p: p >= 0,
    "large errors": lambda y, p: tf.abs(y - p) > 2,
}


@pytest.mark.parametrize("name", KEEPS)
def test_a_mask_bites_on_made_up_rows_too(name: str) -> None:
    loss = keras.src.losses.losses.LossFunctionWrapper(mean_of(KEEPS[name]))
    assert loss_kinds.apart_of(loss, tf.zeros((16, 3)), tf.zeros((16, 3))) is None
    assert kind(mean_of(KEEPS[name]), (16, 3)) == loss_kinds.NEITHER


def test_a_mean_of_hard_pixels_is_no_mean_over_samples() -> None:
    def hard(y: Any, p: Any) -> Any:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), p)
        kept = tf.boolean_mask(each, each > 1.2)
        return tf.cond(tf.size(kept) > 0, lambda: tf.reduce_mean(kept), lambda: tf.reduce_mean(each))

    loss = keras.src.losses.losses.LossFunctionWrapper(hard)
    y, p = tf.zeros((8, 6, 6), tf.int32), tf.zeros((8, 6, 6, 4))
    assert loss_kinds._loss_kind(loss, y, p, by_itself=True) == loss_kinds.NEITHER


def test_a_mean_over_the_mask_that_keras_attaches_to_predictions_is_joined() -> None:
    def masked(y: Any, p: Any) -> Any:
        mask = getattr(p, "_keras_mask", None)
        if mask is None:
            return tf.reduce_mean((y - p) ** 2)
        mask = tf.cast(mask, tf.float32)
        return tf.reduce_sum((y - p) ** 2 * mask) / tf.reduce_sum(mask)

    y, plain, with_mask = (tf.zeros((16, 3)) for _ in range(3))
    keras.src.backend.common.masking.set_keras_mask(with_mask, tf.ones((16, 3), tf.bool))
    for p, right in ((plain, "mean"), (with_mask, "joined")):
        apart = loss_kinds.apart_of(keras.src.losses.losses.LossFunctionWrapper(masked), y, p)
        assert apart is not None and apart.kind == right


def share_of_large(x: Any) -> Any:
    """No made-up row has so large values."""
    large = tf.cast(x > 1e6, tf.float32)
    return tf.reduce_sum(large * x) / (tf.reduce_sum(large) + 1)


def largest(x: Any) -> Any:
    return tf.reduce_mean(tf.math.top_k(tf.reshape(x, [-1]), 3)[0])


class Twice(layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(largest(x))
        self.add_loss(largest(-x))
        return x


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (lambda: layers.Dense(4, activity_regularizer=share_of_large), ["the loss that layer 'it' adds is not a mean"]),
        (lambda: layers.Dense(4, activity_regularizer=largest), ["the loss that layer 'it' adds is not a mean"]),
        (lambda: layers.Dense(4, activity_regularizer=lambda x: 0.1 * ops.sum(ops.square(x))), []),
        (lambda: layers.Dense(4, activity_regularizer=keras.regularizers.L1L2(0.1, 0.1)), []),
        (Twice, [f"loss {turn} of the 2 that layer 'it' adds" for turn in (1, 2)]),
    ],
    ids=["a masked mean", "the largest", "a sum", "Keras's", "two losses"],
)
def test_each_added_loss_that_is_no_mean_has_a_line(
    layer: Callable[[], Any], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    say._said.clear()
    own = layer()
    own.name = "it"
    model, x, found = keras.Sequential([keras.Input((5,)), own]), tf.ones((16, 5)), loss_kinds.Kinds()

    def traced(x: Any) -> Any:
        with added_losses.of_all_layers(model, lambda own: own, 2, found, uneven=False):
            model(x)
        loss_kinds.kinds_of_added(model, x, found)
        return x

    tf.function(traced, autograph=False).get_concrete_function(x)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ring:")]
    assert len(lines) == len(said)
    assert all(line.startswith(f"ring: {start}") for line, start in zip(lines, said, strict=True))


def test_losses_of_one_name_are_told_apart_by_their_outputs() -> None:
    inputs = keras.Input((5,))
    model = keras.Model(inputs, [layers.Dense(1, name=name)(inputs) for name in ("one", "other")])
    shared = keras.losses.MeanSquaredError(name="its")
    for given, names in (
        ([lambda y, p: tf.reduce_mean(y - p)] * 2, ["'lambda' of output 'one'", "'lambda' of output 'other'"]),
        ([shared] * 2, ["'its' of output 'one' and 'other'"] * 2),
    ):
        model.compile("sgd", given)
        model.train_on_batch(tf.ones((2, 5)), [tf.ones((2, 1))] * 2)
        compiled = model._compile_loss
        assert [loss_kinds.name_of(each.loss, compiled) for each in compiled._flat_losses] == names


class Weighted(keras.Model):
    """Gives Keras's train step weights that are 1 in sum."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        known = tf.cast(tf.reduce_any(y >= 0, -1), tf.float32)
        return super().train_step((x, y, known / tf.reduce_sum(known)))


class OwnAndWeighted(keras.Model):
    """Adds a loss of its own to Keras's, which gets positional arguments."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            weights = tf.reduce_sum(y, -1)
            loss = self.compute_loss(x, y, p, weights / tf.reduce_mean(weights)) + tf.reduce_mean(p)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {}


@pytest.mark.parametrize(
    ("kind", "kinds", "cuts"), [(Weighted, ("fixed", "rows"), {"Sum"}), (OwnAndWeighted, ("mean", "rows"), {"Mean"})]
)
def test_sums_by_which_a_train_step_divides_sample_weights_are_joined(
    kind: Any, kinds: tuple[str, ...], cuts: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = keras.Input((5,))
    model = kind(inputs, layers.Dense(3)(inputs))
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    found = []

    def traced(x: Any, y: Any) -> Any:
        found.append(train_step_losses.of_step(model, model.train_step, (x, y), uneven=False))
        return x

    tf.function(traced, autograph=False).get_concrete_function(tf.zeros((8, 5)), tf.zeros((8, 3)))
    assert found[0].apart.kinds == kinds and found[0].learnt == 1
    assert {name for name, _ in found[0].apart.cuts} == cuts
    train_step_losses.say(model, found[0], met=True)
    assert "ring:" not in capsys.readouterr().err


def test_kerass_train_step_stays_kerass_when_fit_puts_a_range_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the whole step is traced once more, to read its losses, on several ranks."""
    of_keras.lay(keras)
    trainer = defining("train_step")
    monkeypatch.setattr(trainer, "train_step", beneath(trainer.train_step))
    model = keras.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    bound = model.train_step
    model.fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0)
    assert trainer.train_step is not bound.__func__
    assert not train_step_losses.is_own(bound) and not train_step_losses.is_own(model.train_step)

    @functools.wraps(trainer.train_step)
    def by_hand(data: Any) -> Any:
        return model.train_step(data)

    assert train_step_losses.is_own(by_hand) and train_step_losses.is_own(
        Weighted(model.inputs, model.outputs).train_step
    )
