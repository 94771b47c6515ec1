"""What a compiled step draws by `tf.random`: by which rules it differs, and that it is what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_random_ops

from ringscope.ring.forms import draws

MANY = 20_000


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    before = context.global_seed()
    tf.random.set_seed(11)
    yield
    tf.random.set_seed(before)


def compiled(draw: Callable[[], Any]) -> Callable[[], list[np.ndarray]]:
    """What the function draws each time, in a program of XLA's."""
    model = keras.Sequential()

    def traced() -> Any:
        with draws.from_seeds(model):
            return draw()

    program = tf.function(traced, jit_compile=True, autograph=False)
    return lambda: [each.numpy() for each in program()]


def normals(**options: Any) -> list[Any]:
    return [tf.random.normal([8], **options) for _ in range(2)]


def test_each_operation_and_each_step_draws_anew() -> None:
    step = compiled(normals)
    first, second = step(), step()
    assert len({numbers.tobytes() for numbers in (*first, *second)}) == 4


def test_operations_of_one_seed_draw_the_same_in_every_step() -> None:
    """By which a picture and its mask are turned alike."""
    step = compiled(lambda: [*normals(seed=3), *normals(seed=4)])
    first, second = step(), step()
    for one, its_like, other, _ in (first, second):
        np.testing.assert_array_equal(one, its_like)
        assert np.all(one != other)
    assert np.all(first[0] != second[0])


def test_it_is_repeated_by_tensorflows_seed_and_by_no_other() -> None:
    drawn = []
    for seed in (11, 11, 12):
        tf.random.set_seed(seed)
        step = compiled(lambda: [*normals(), *normals(seed=3)])
        drawn.append(np.concatenate([*step(), *step()]))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.all(drawn[0][:16] != drawn[2][:16])


@pytest.mark.parametrize(
    ("draw", "mean", "deviation", "least", "largest"),
    [
        (lambda: tf.random.normal([MANY], 2.0, 3.0), 2, 3, -np.inf, np.inf),
        (lambda: tf.random.truncated_normal([MANY]), 0, 0.8796, -2, 2),  # Johnson, Kotz 1970, 13.7
        (lambda: tf.random.uniform([MANY], -1.0, 3.0), 1, 4 / 12**0.5, -1, 3),
        (lambda: tf.random.uniform([MANY], 0, 5, tf.int64), 2, 2**0.5, 0, 4),
        (lambda: tf.random.categorical(tf.math.log([[0.2, 0.8]]), MANY)[0], 0.8, 0.4, 0, 1),
        (lambda: tf.random.shuffle(tf.range(MANY)), (MANY - 1) / 2, MANY / 12**0.5, 0, MANY - 1),
        (lambda: 2 * tf.nn.dropout(tf.ones([MANY]), 0.5), 2, 2, 0, 4),
    ],
)
def test_numbers_are_of_the_kind_that_was_asked_for(
    draw: Callable[[], Any], mean: float, deviation: float, least: float, largest: float
) -> None:
    (drawn,) = compiled(lambda: [draw()])()
    assert drawn.shape == (MANY,)
    assert drawn.min() >= least and drawn.max() <= largest
    assert abs(drawn.mean() - mean) < 5 * deviation / MANY**0.5
    assert abs(drawn.std() / deviation - 1) < 0.03


def test_rows_are_shuffled_and_none_is_lost() -> None:
    rows = np.arange(60).reshape(20, 3)
    (shuffled,) = compiled(lambda: [tf.random.shuffle(tf.constant(rows))])()
    assert not np.array_equal(shuffled, rows)
    np.testing.assert_array_equal(shuffled[np.argsort(shuffled[:, 0])], rows)


def test_tensorflow_draws_as_before_once_the_step_is_traced() -> None:
    own = gen_random_ops.random_standard_normal
    compiled(normals)()
    assert gen_random_ops.random_standard_normal is own
