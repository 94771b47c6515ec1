"""What a step has made of its gradients: sums and factors of them, whose averages are the joined batch's, or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.global_batch.changed_gradients import Gradients  # noqa: E402
from ringscope.ring.gradients.average import _are_unique  # noqa: E402
from ringscope.ring.step import kinds  # noqa: E402

Made = Callable[[Any, Any, Any], list[Any]]
LINEAR: dict[str, Made] = {
    "as they are": lambda a, b, w: [a, b],
    "a factor": lambda a, b, w: [0.5 * a, b / tf.cast(tf.size(b), tf.float32)],
    "decay": lambda a, b, w: [a + 0.01 * w, b - w],
    "centred": lambda a, b, w: [a - tf.reduce_mean(a, axis=0), b],
    "their sum": lambda a, b, w: [tf.add_n([a, b]), tf.concat([a, b], axis=0)],
    "by a product of what is no gradient": lambda a, b, w: [a * tf.norm(w), tf.matmul(w, b, transpose_a=True)],
    "not of gradients": lambda a, b, w: [tf.sign(w), w],
    "noise": lambda a, b, w: [a + tf.random.normal(tf.shape(a)), b],
    "none": lambda a, b, w: [None, b],
}
MORE: dict[str, Made] = {
    "clipped together": lambda a, b, w: tf.clip_by_global_norm([a, b], 1.0)[0],
    "one clipped by its norm": lambda a, b, w: [a, tf.clip_by_norm(b, 1.0)],
    "clipped by value": lambda a, b, w: [tf.clip_by_value(a, -1.0, 1.0), b],
    "normalised": lambda a, b, w: [a / tf.norm(a), b],
    "projected": lambda a, b, w: [a - tf.reduce_sum(a * b) / 4.0 * b, b],
    "signs": lambda a, b, w: [tf.sign(a), b],
    "without what is no number": lambda a, b, w: [tf.where(tf.math.is_nan(a), 0.0, a), b],
    "clipped, then scaled": lambda a, b, w: [2.0 * tf.clip_by_norm(a, 1.0), b],
}


@pytest.mark.parametrize("made", [*LINEAR, *MORE])
def test_gradients_that_are_changed_by_more_than_sums_and_factors_are_told(made: str) -> None:
    with tf.Graph().as_default():
        a, b, w = (tf.compat.v1.placeholder(tf.float32, (3, 3)) for _ in range(3))
        gradients = Gradients([])
        taken = [2.0 * tf.exp(a), tf.exp(b)]
        gradients.taken([*taken, None])
        assert gradients.are_changed((LINEAR | MORE)[made](*taken, w)) == (made in MORE)


def test_rows_of_an_embedding_are_told_too() -> None:
    with tf.Graph().as_default():
        rows = tf.IndexedSlices(tf.compat.v1.placeholder(tf.float32, (4, 2)), tf.constant([0, 1, 1, 3]))
        gradients = Gradients([])
        gradients.taken([rows])
        assert not gradients.are_changed([rows])
        assert gradients.are_changed([tf.IndexedSlices(tf.sign(rows.values), rows.indices)])


def test_a_factor_that_a_rank_computes_from_its_own_batch_is_told() -> None:
    with tf.Graph().as_default():
        x, a = (tf.compat.v1.placeholder(tf.float32, (None, 3)) for _ in range(2))
        gradients = Gradients([x])
        gradients.taken([a])
        assert gradients.are_changed([a * tf.reduce_mean(tf.square(x))])
        assert gradients.are_changed([a / (1.0 + tf.reduce_sum(x))])
        assert not gradients.are_changed([a / tf.cast(tf.shape(x)[0], tf.float32)])


def test_an_optimizer_that_gets_gradients_before_they_are_averaged_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Signs(keras.optimizers.SGD):
        def apply_gradients(self, pairs: Any) -> Any:
            return super().apply_gradients([(tf.sign(gradient), variable) for gradient, variable in pairs])

    for optimizer, lines in ((Signs(), 1), (keras.optimizers.Adam(), 0)):
        kinds.reduce_in_apply(keras.Model(), optimizer, lambda gradients, _: gradients, 1)
        assert capsys.readouterr().err.count("has an apply_gradients of its own") == lines


def test_a_lookup_of_sparse_ids_has_each_once_and_one_of_words_has_not() -> None:
    found = {}

    @tf.function
    def traced(table: Any) -> Any:
        ids = tf.sparse.from_dense(np.array([[1, 2], [2, 0]]))
        for name, lookup in (("sparse", tf.nn.embedding_lookup_sparse), ("words", tf.nn.embedding_lookup)):
            with tf.GradientTape() as tape:
                given = lookup(table, ids, None) if name == "sparse" else lookup(table, ids.values)
                loss = tf.reduce_sum(given**2)
            found[name] = _are_unique(tape.gradient(loss, table).indices)
        return loss

    traced(tf.Variable(np.ones((5, 2), "float32")))
    assert found == {"sparse": True, "words": False}
