"""Call a traced function by its graph while the batches have one kind.

For each call of a tf.function TensorFlow describes the arguments leaf by leaf and looks up the matching graph. Nothing
is launched meanwhile, which takes a fifth of a small model's step. Consecutive batches of one kind reuse the last
batch's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..feed.carriers import Carried, data_of, leaves_of
from ..internals.frameworks import tf, traced_for_each_model


class ByGraph:
    """Calls a function by its graph. function: a `tf.function` whose only argument is a batch."""

    def __init__(self, function: Any) -> None:
        traced_for_each_model(function)
        self.function = function
        self.anew()

    def anew(self) -> None:
        """Forget the graph, because the next batches may nest equal leaves differently."""
        self._kind: Any = None
        self._graph: Callable[[Any], Any] | None = None
        self.variables: Sequence[Any] = ()  # the graph's variables

    def __call__(self, batch: Any) -> Any:
        """Call the function. batch: as the function takes it, or `Carried`."""
        kind = None if tf.config.functions_run_eagerly() or _is_watched(self.function) else _kind(batch)
        if kind is None or kind != self._kind:
            self._kind, self._graph = kind, None
            return self.function(data_of(batch))
        if self._graph is None:
            data = data_of(batch)
            graph = self.function.get_concrete_function(data)
            self._graph, self.variables = _of_leaves(graph, data), graph.variables
        return self._graph(leaves_of(batch))


def _is_watched(function: Any) -> bool:
    """True if a call of TensorFlow's functions was replaced, as `ringscope doctor` does to see every step of a script.
    The replacement need not be in Python."""
    code = getattr(type(function).__call__, "__code__", None)
    return code is None or "/tensorflow/" not in code.co_filename


def _kind(batch: Any) -> Hashable:
    """The types and shapes of a batch, which decide whether one graph fits. None if the batch holds more than dense
    tensors, or one tensor twice, which a graph takes as one input."""
    if isinstance(batch, Carried):
        return batch.shapes
    leaves = tf.nest.flatten(batch)
    if not all(isinstance(leaf, tf.Tensor) for leaf in leaves) or len(set(map(id, leaves))) < len(leaves):
        return None
    return tuple((leaf.dtype, tuple(leaf.shape)) for leaf in leaves)


def _of_leaves(graph: Any, data: Any) -> Callable[[list[Any]], Any]:
    """The graph as a function of a batch's leaves. The function does not check that the leaves have the structure
    and types of `data`. TensorFlow has only a private way to skip these checks; if that changes, the checks run."""

    def checked(leaves: list[Any]) -> Any:
        return graph(tf.nest.pack_sequence_as(data, leaves))

    try:
        own = graph.function_type.unpack_inputs(graph.function_type.bind(data))
        call, captured = graph._call_flat, graph.captured_inputs
        fixed = not graph.graph.deferred_external_captures
    except (AttributeError, TypeError):
        return checked
    leaves = tf.nest.flatten(data)
    in_order = len(own) == len(leaves) and all(one is other for one, other in zip(own, leaves, strict=True))
    return (lambda leaves: call(leaves, captured)) if fixed and in_order else checked
