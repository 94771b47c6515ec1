"""A traced function called by its graph, where batches come alike.

For each call TensorFlow describes the arguments anew, leaf by leaf, and looks up the graph that fits, and nothing is
launched meanwhile: a fifth of a small model's step. Batches of one kind in a row take the graph of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ..feed import Carried, data_of, leaves_of
from ..internals.frameworks import tf


class ByGraph:
    """function: a `tf.function` of one argument, a batch."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.anew()

    def anew(self) -> None:
        """The next batches may hold such leaves in another structure."""
        self._kind: Any = None
        self._graph: Callable[[Any], Any] | None = None

    def __call__(self, batch: Any) -> Any:
        """batch: as the function takes it, or `Carried`."""
        kind = None if tf.config.functions_run_eagerly() or _is_watched(self.function) else _kind(batch)
        if kind is None or kind != self._kind:
            self._kind, self._graph = kind, None
            return self.function(data_of(batch))
        if self._graph is None:
            data = data_of(batch)
            self._graph = _of_leaves(self.function.get_concrete_function(data), data)
        return self._graph(leaves_of(batch))


def _is_watched(function: Any) -> bool:
    """True if somebody has replaced the call of TensorFlow's functions, as `ringscope doctor` does to look at a
    script's steps: they must see them all. The replacement need not be written in Python."""
    code = getattr(type(function).__call__, "__code__", None)
    return code is None or "/tensorflow/" not in code.co_filename


def _kind(batch: Any) -> Hashable:
    """What batches have in common that one graph takes. None where they hold more than dense tensors, or one of them
    twice, which a graph takes once."""
    if isinstance(batch, Carried):
        return batch.shapes
    leaves = tf.nest.flatten(batch)
    if not all(isinstance(leaf, tf.Tensor) for leaf in leaves) or len(set(map(id, leaves))) < len(leaves):
        return None
    return tuple((leaf.dtype, tuple(leaf.shape)) for leaf in leaves)


def _of_leaves(graph: Any, data: Any) -> Callable[[list[Any]], Any]:
    """The graph as a function of the leaves of batches of one kind with `data`, which it does not check. TensorFlow has
    no public way to leave its checks of each out; where its private one changes, they are made."""

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
