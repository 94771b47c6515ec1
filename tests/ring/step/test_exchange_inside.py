"""In which order the exchanges inside of a step come, which no two ranks may take otherwise (whole.py trains)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.gradients.wire import Outgoing  # noqa: E402
from ringscope.ring.step.exchange_inside import Inside  # noqa: E402


def _inside() -> Inside:
    outgoing = partial(Outgoing, keeps=False, narrow=None, as_rows=True, averages=True, packs=True)
    made = Inside("average", lambda gradients, _: list(gradients), outgoing)
    made.begin(alike=True, is_bound=True)
    return made


def _before(tensor: Any) -> set[str]:
    """The names of all operations that have to end before this is there, those of outer graphs too."""
    graph, found, left = tensor.graph, set(), [tensor.op]
    captured = {inner.op.name: outer for outer, inner in graph.captures} if hasattr(graph, "captures") else {}
    while left:
        op = left.pop()
        if op.name in found:
            continue
        found.add(op.name)
        left.extend(each.op for each in op.inputs)
        if op.name in captured and isinstance(captured[op.name], tf.Tensor) and hasattr(captured[op.name], "op"):
            found |= _before(captured[op.name])
    return found


def _sums(graph: Any) -> list[str]:
    """The calls that sum, in the order that they were traced in."""
    calls = [op for op in graph.get_operations() if op.type == "XlaCallModule"]
    return [op.name for op in calls if b"ring_sum" in op.get_attr("module")]


def test_an_exchange_comes_after_the_one_that_was_traced_before_it() -> None:
    """Though neither reads what the other gives."""
    variables = [tf.Variable(tf.zeros([3])), tf.Variable(tf.zeros([3, 2], tf.float64))]
    inside = _inside()
    with tf.Graph().as_default() as graph:
        given = [tf.compat.v1.placeholder(v.dtype, v.shape) for v in variables]
        sums = [inside.exchange([g], [v], compiled=True)[0] for g, v in zip(given, variables, strict=True)]
        first, second = _sums(graph)
        assert first in _before(sums[1]) and second not in _before(sums[0])
        assert given[0].op.name in _before(sums[1])


def test_an_exchange_of_two_types_is_one_call() -> None:
    variables = [tf.Variable(tf.zeros([3])), tf.Variable(tf.zeros([3, 2], tf.float64)), tf.Variable(tf.zeros([4]))]
    inside = _inside()
    with tf.Graph().as_default() as graph:
        given = [tf.compat.v1.placeholder(v.dtype, v.shape) for v in variables]
        sums = inside.exchange([given[0], given[1], None], variables, compiled=True)
        assert len(_sums(graph)) == 1
    assert [None if each is None else (each.dtype, each.shape) for each in sums] == [
        (tf.float32, [3]),
        (tf.float64, [3, 2]),
        None,
    ]


def test_one_in_a_branch_comes_after_those_before_it() -> None:
    variable, inside, seen = tf.Variable(tf.zeros([3])), _inside(), []

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        (one,) = inside.exchange([x], [variable], compiled=True)
        seen.extend(_sums(one.graph))

        def branch() -> Any:
            (other,) = inside.exchange([2 * x], [variable], compiled=True)
            assert seen[0] in _before(other)
            return other

        return one + tf.cond(x[0] > 0, branch, lambda: x)

    step.get_concrete_function(tf.TensorSpec([3]))
    assert len(seen) == 1
