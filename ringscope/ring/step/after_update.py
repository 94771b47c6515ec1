"""A train step's use of its weights after it has applied gradients.

A step that is compiled in halves is one program up to the gradients, and another that applies them. Work of the
model's own step after `apply` would come before it there: a teacher that follows the weights by a moving average would
follow the weights of one step before, and weights that are clipped would be moved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ..internals.frameworks import tf

__all__ = ["Place", "place", "used_since"]

Place = int
"""Number of operations made so far in the graph that is being traced."""

ASK_NO_VALUE = ("VariableShape", "VarIsInitializedOp")


def place() -> Place:
    return 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())


def used_since(place: Place, variables: Sequence[Any]) -> str | None:
    """The path of one of the variables that the graph at hand reads or writes after that place; None where none is."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    paths = {id(_handle(variable)): getattr(variable, "path", variable.name) for variable in variables}
    inside = {own.name: paths[id(handle)] for handle, own in graph.captures if id(handle) in paths}
    for operation in graph.get_operations()[place:]:
        if operation.type not in ASK_NO_VALUE:
            for tensor in operation.inputs:
                if tensor.name in inside:
                    return str(inside[tensor.name])
    return None


def _handle(variable: Any) -> Any:
    """Of Keras's or TensorFlow's: a tape may have watched either."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
