"""Gradients of a function's own, `tf.custom_gradient`, let go with the graphs that they were traced in.

TensorFlow keeps each in a table of the process for good, and with it its graph: every optimizer of Keras has one in its
step, so that a model that was trained left its step behind, 1.6 MiB of a small one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from . import seams
from .frameworks import tf
from .laid_over import laid_for_good

__all__ = ["let_go_with_their_graphs"]


def let_go_with_their_graphs() -> None:
    """From now on such a graph holds its gradients, and the table only knows of them while they are there."""
    if not seams.has("freeing the memory of models that are gone"):
        return
    from tensorflow.python.framework import ops

    table = ops.gradient_registry._registry
    laid_for_good(ops.RegisterGradient, "__call__", partial(_held_by_its_graph, table))


def _held_by_its_graph(table: dict[str, Any], own: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, gradient: Any) -> Any:
        found = own(self, gradient)
        if gradient.__module__ == tf.custom_gradient.__module__:  # others are gradients of a kind of operation
            name = self._op_type
            held = weakref.ref(gradient, lambda _: table.pop(name, None))
            table[name]["type"] = lambda *given: held()(*given)  # type: ignore[misc]
            graph = tf.compat.v1.get_default_graph()
            graph.gradients_by_ring = [*getattr(graph, "gradients_by_ring", ()), gradient]
        return found

    return call
