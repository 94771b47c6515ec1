"""What ranks compare to be alike, asked in one process: steps, data and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not installed")
import keras
import tensorflow as tf

from profiles.ground.errors import RingscopeError
from ringscope.ring.alike import begin, statistics, weights
from ringscope.ring.alike.data import check_data, data_facts
from ringscope.ring.alike.weights import differing_weight, weights_digest
from ringscope.ring.fit import fit, step_counts
from ringscope.ring.internals.frameworks import hvd
from ringscope.ring.models import kept

Data = tf.data.Dataset


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"x": np.zeros((64, 3))}, 2),
        ({"x": np.zeros((65, 3))}, 3),
        ({"x": np.zeros((65, 3)), "batch_size": 5}, 13),
        ({"x": np.zeros((100, 3)), "validation_split": 0.2, "batch_size": 16}, 5),
        ({"x": {"a": np.zeros((64, 3)), "b": np.zeros(64)}, "steps_per_epoch": 7}, 7),
        ({"x": Data.range(10).batch(4)}, 3),
        ({"x": Data.range(10).batch(4).repeat()}, step_counts.UNKNOWN),
        ({"x": Data.range(10).filter(lambda x: x > 3).batch(4)}, step_counts.UNKNOWN),
    ],
)
def test_the_steps_of_an_epoch_are_known_before_it(options: dict[str, Any], steps: int) -> None:
    assert step_counts.steps(options) == steps


@pytest.mark.parametrize(
    ("counts", "refused"),
    [
        ([4, 4], ""),
        ([4, 5], "rank 0 has 4 .* rank 1 has 5"),
        ([4, -1, 4], ""),
        ([7, -1, 3, 7], "rank 2 has 3 .* rank 0 has 7"),
    ],
)
def test_ranks_of_unlike_plans_are_refused_by_name_and_those_who_do_not_know_are_not(
    counts: list[int], refused: str
) -> None:
    if not refused:
        step_counts._check_alike(counts, "steps", "")
        return
    with pytest.raises(RingscopeError, match=refused):
        step_counts._check_alike(counts, "steps", "")


def _bits(values: np.ndarray[Any, Any]) -> int:
    """Words of 64 bits, and what is left number by number, added up."""
    raw, size = values.tobytes(), min(values.itemsize, 8)
    whole = len(raw) // 8 * 8
    left = np.frombuffer(raw[whole:], f"i{size}").astype(np.int64)
    with np.errstate(over="ignore"):
        return int(np.frombuffer(raw[:whole], np.int64).sum() + left.sum())


@pytest.mark.parametrize("together", [1, 40, 64 << 20])
def test_one_number_of_another_value_is_seen_wherever_it_stands(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_TOGETHER_BYTES", together)
    kinds = ("float16", "float32", "float64", "int8", "int32", "bfloat16")
    shapes = [(1,), (3,), (2, 5), (8,), (9, 3), (3,), (2, 5), (3,)]
    own = [np.arange(1, np.prod(shape) + 1).reshape(shape) for shape in shapes for _ in kinds]
    variables = [keras.Variable(one, dtype=kind) for one, kind in zip(own, [*kinds] * len(shapes), strict=True)]
    digest = weights_digest(variables).numpy()
    digest_now = tf.function(lambda: weights_digest(variables), autograph=False)  # each call eagerly takes 0.2 s
    assert (digest_now().numpy() == digest).all()
    assert digest.tolist() == [_bits(np.asarray(variable)) for variable in variables]
    for place in range(27):
        for variable, values in zip(variables, own, strict=True):
            other = values.copy()
            other.flat[place % values.size] += 2
            variable.assign(other)
        assert (digest_now().numpy() != digest).all()


def test_trainable_complex_weights_are_refused_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Turned(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.turn = self.add_weight(shape=(3,), dtype="complex64", initializer="zeros", name="turn")

        def call(self, x: Any) -> Any:
            return tf.math.real(tf.cast(x, tf.complex64) * self.turn)

    model = keras.Sequential([keras.Input((3,)), Turned(name="turned")])
    monkeypatch.setattr(hvd, "size", lambda: 1)
    begin.broadcast(model)
    monkeypatch.setattr(hvd, "size", lambda: 2)
    with pytest.raises(RingscopeError, match=r"turned/turn is complex64, .*; hold its real and its imaginary part in"):
        begin.broadcast(model)


def test_fit_hashes_a_models_weights_once_at_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.BatchNormalization()])
    model.compile("sgd", "mse")
    kept(model).weights = len(model.weights)
    statistics.alike_now(model)
    monkeypatch.setattr(hvd, "size", lambda: 2)  # one rank alone hashes nothing
    monkeypatch.setattr(weights, "_gone", [])  # models of tests before this one, whenever garbage is collected
    hashed: list[int] = []

    def counted(variables: Any) -> Any:
        hashed.append(len(variables))
        return weights_digest(variables)

    monkeypatch.setattr(weights, "weights_digest", counted)
    both = model.trainable_weights, statistics.untrained_weights(model)
    own = [weights_digest(these).numpy().tolist() for these in both]
    assert list(fit.digests(model)) == own
    weights.compared(model).found_equal(model.trainable_weights, own[0])
    assert fit.digests(model) == (None, own[1])
    model.layers[0].kernel.assign_add([[1.0], [0.0]])
    changed, of_statistics = fit.digests(model)
    assert changed not in (None, own[0]) and of_statistics is None
    assert hashed == [4, 4, 4]


def test_the_first_weight_that_differs_is_named_with_its_rank() -> None:
    same = np.array([[1, 2, 3]] * 3)
    assert differing_weight(same) is None
    same[2, 1] = same[1, 2] = 9
    assert differing_weight(same) == (1, 2)


def _facts(x: Any) -> dict[str, str]:
    return data_facts(x, "x")


ROWS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        (_facts(ROWS), _facts(ROWS.copy()), ""),
        (_facts(ROWS), _facts(ROWS[::-1]), "^x differs between rank 0 and rank 1"),
        (_facts(ROWS), _facts(ROWS.astype("float32")), "^x differs between rank 0 and rank 1"),
        (_facts([ROWS, ROWS]), _facts([ROWS, -ROWS]), r"^x\[1\] differs between"),
        (_facts(ROWS), _facts(None), "^x is given on some ranks only"),
        (_facts(Data.range(8).batch(2)), _facts(Data.range(8).batch(4)), "^the number of batches of x differs"),
        (
            _facts(Data.range(9).shuffle(3, 1)),
            _facts(Data.range(9).shuffle(3, 2)),
            "^the seed of a shuffle of x differs",
        ),
    ],
)
def test_ranks_that_prepared_other_data_are_refused_and_what_differs_is_named(
    first: dict[str, str], second: dict[str, str], refused: str
) -> None:
    if not refused:
        assert check_data([first, second]) == []
        return
    with pytest.raises(RingscopeError, match=refused):
        check_data([first, second])


def test_what_may_be_random_is_a_warning_that_names_the_rank() -> None:
    (said,) = check_data([{"~the first element": "a"}, {"~the first element": "a"}, {"~the first element": "b"}])
    assert said.startswith("the first element differs between rank 0 and rank 2")
