"""Detect that a train step uses its weights after it has applied gradients.

A step compiled as two programs ends the first program at the gradients and applies them in the second. Work of the
model's own step that comes after `apply` would then run before the update: a teacher that follows the weights by a
moving average would lag by one step, and clipped weights would change again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ..internals.frameworks import tf

Place = int
"""Number of operations in the graph that is being traced."""

ASK_NO_VALUE = ("VariableShape", "VarIsInitializedOp")  # these operations use a variable, but not its value


def place() -> Place:
    return 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())


def used_since(place: Place, variables: Sequence[Any]) -> str | None:
    """The path of a variable that the current graph reads or writes after operation number `place`; None if there is
    none."""
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
    """The handle of a Keras or TensorFlow variable; a gradient tape may have watched either."""
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle
