"""Functions called by their graphs: the same values, one trace for each kind of batch, whatever comes after what."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.feed import Carried
from ringscope.ring.fit.by_graph import ByGraph, _is_watched


def _counted(function: Callable[[Any], Any], **options: Any) -> tuple[ByGraph, list[Any]]:
    """The function by its graphs, and what it has been traced for."""
    traces: list[Any] = []

    def counted(data: Any) -> Any:
        traces.append(data)
        return function(data)

    return ByGraph(tf.function(counted, autograph=False, **options)), traces


def _difference(data: Any) -> Any:
    first, second = (data["a"], data["b"]) if isinstance(data, dict) else data
    return {"difference": tf.reduce_sum(first - second), "shape": tf.shape(first)}


def _batch(samples: int, kind: str = "float32") -> tuple[Any, Any]:
    random = np.random.default_rng(samples)
    first, second = (tf.constant(random.normal(size=(samples, 3)).astype(kind)) for _ in range(2))
    return first, second


def test_each_batch_gets_its_own_values_and_each_kind_one_trace() -> None:
    by_graph, traces = _counted(_difference)
    for samples, kind in [(4, "float32")] * 3 + [(2, "float32"), (4, "float32"), (4, "float64"), (4, "float64")]:
        for batch in (_batch(samples, kind), tuple(reversed(_batch(samples, kind)))):
            found = by_graph(batch)
            np.testing.assert_allclose(found["difference"], np.sum(batch[0] - batch[1]), rtol=1e-5)
            assert list(found["shape"]) == [samples, 3]
    assert len(traces) == 3


def test_tensorflow_warns_of_no_retracing_where_each_model_has_a_function_of_its_own() -> None:
    warned: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tensorflow")
    logger.addHandler(handler)
    try:
        for _ in range(8):
            _counted(_difference)[0](_batch(4))
    finally:
        logger.removeHandler(handler)
    assert not [text for text in warned if "retracing" in text]


def test_variables_made_by_the_first_call_are_kept() -> None:
    made: list[Any] = []

    def add(data: Any) -> Any:
        if not made:
            made.append(tf.Variable(0.0))
        return made[0].assign_add(tf.reduce_sum(data))

    by_graph, _ = _counted(add)
    assert [float(by_graph(tf.ones([2]))) for _ in range(4)] == [2, 4, 6, 8]


def test_leaves_of_one_kind_in_another_structure() -> None:
    by_graph, traces = _counted(_difference)
    first, second = _batch(4)
    for data in ((first, second), {"b": first, "a": second}, (first, second)):
        by_graph.anew()
        for _ in range(3):
            found = float(by_graph(data)["difference"])
            assert found == float(_difference(data)["difference"])
    assert len(traces) == 2


def test_a_leaf_that_a_batch_holds_twice() -> None:
    by_graph, _ = _counted(_difference)
    first, second = _batch(4)
    wanted = float(tf.reduce_sum(first - second))
    for data, found in [((first, first), 0.0)] * 2 + [((first, second), wanted)] * 3 + [((second, second), 0.0)] * 2:
        assert float(by_graph(data)["difference"]) == found


def test_leaves_of_one_kind_keep_their_names() -> None:
    by_graph, _ = _counted(_difference)
    for samples in (4, 4, 4, 2, 2):
        first, second = _batch(samples)
        assert float(by_graph({"b": second, "a": first})["difference"]) == float(tf.reduce_sum(first - second))


def test_batches_in_carriers_get_their_own_values_and_each_kind_one_trace() -> None:
    by_graph, traces = _counted(_difference)
    for samples in (4, 4, 2, 2, 4):
        batch = _batch(samples)
        first, second = batch
        shapes = ((samples, 3), (samples, 3))
        found = by_graph(Carried({"b": 0, "a": 0}, [first, second], ("float32", "float32"), shapes))
        assert float(found["difference"]) == float(tf.reduce_sum(first - second))
        found = by_graph(Carried({"b": 0, "a": 0}, [second, first], ("float32", "float32"), None))
        assert float(found["difference"]) == float(tf.reduce_sum(second - first))
    assert len(traces) == 2


def test_what_is_not_dense_goes_through_the_function() -> None:
    by_graph, traces = _counted(lambda data: tf.reduce_sum(data[0].values) + tf.cast(data[1] or 0, tf.float32))
    for rows in ([[1.0], [2.0, 3.0]], [[1.0, 4.0], [2.0]], [[5.0], []]):
        ragged = tf.ragged.constant(rows)
        assert float(by_graph((ragged, None))) == sum(map(sum, rows))
    assert traces


def test_arrays_and_tensors_by_turns() -> None:
    by_graph, _ = _counted(lambda data: tf.reduce_sum(data))
    for value in (np.ones(3, "float32"), tf.ones(3), tf.ones(3), np.full(3, 2, "float32"), tf.fill([3], 2.0)):
        assert float(by_graph(value)) == float(np.sum(value))


def test_a_signature_of_any_batch_takes_them_all_in_one_trace() -> None:
    spec = (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 3]))
    by_graph, traces = _counted(_difference, input_signature=[spec])
    for samples in (4, 4, 4, 1, 1, 4):
        batch = _batch(samples)
        np.testing.assert_allclose(by_graph(batch)["difference"], np.sum(batch[0] - batch[1]), rtol=1e-5)
    assert len(traces) == 1


def test_functions_that_are_to_run_eagerly_do() -> None:
    by_graph, traces = _counted(tf.reduce_sum)
    batch = tf.ones([3])
    for _ in range(3):
        by_graph(batch)
    assert len(traces) == 1
    tf.config.run_functions_eagerly(True)
    try:
        by_graph(batch)
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(traces) == 2


def test_who_watches_tensorflows_functions_sees_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    by_graph, traces = _counted(tf.reduce_sum)
    kind = type(tf.function(lambda: None))
    own, seen = kind.__call__, []

    @functools.wraps(own)
    def watching(*given: Any) -> Any:
        seen.append(given)
        return own(*given)

    by_graph(tf.ones([3]))
    by_graph(tf.ones([3]))
    monkeypatch.setattr(kind, "__call__", watching)
    assert [float(by_graph(tf.fill([3], float(i)))) for i in range(4)] == [0, 3, 6, 9]
    assert len(seen) == 4 and len(traces) == 1


def test_a_call_that_is_not_written_in_python_is_somebodys_own() -> None:
    assert not _is_watched(tf.function(tf.reduce_sum)) and _is_watched(len)
