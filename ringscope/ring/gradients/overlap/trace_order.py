"""The order of a traced step's operations, and the tensors that the rest of its backward pass depends on.

TensorFlow's tape computes a layer's gradients when it reaches the layer. XLA schedules by memory and moves the matrix
products for weight gradients to the end of the program, where nothing is left to overlap with their exchange. So each
exchange's first call gets the inputs of the rest of the backward pass and returns them, which forces XLA to run the
call first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...internals.frameworks import tf
from ...internals.stablehlo import TYPES

OF_TAPE = "gradient_tape/"  # part of the names of operations that a gradient tape makes
HANDED_ON = ("Cast", "Identity", "Reshape")  # operations that may lie between a gradient and the tensor that is sent
MOST = 64  # the most tensors that pass through one exchange's call


class Traced:
    """The operations of the current graph. ended: the number of operations when the gradients were complete."""

    def __init__(self, ended: int) -> None:
        self._operations = tf.compat.v1.get_default_graph().get_operations()[:ended]
        self._place = {operation.name: i for i, operation in enumerate(self._operations)}
        of_tape = (i for i, operation in enumerate(self._operations) if OF_TAPE in operation.name)
        self.backward = next(of_tape, ended)  # place of the first operation of the backward pass
        # name of a tensor -> (place, input number) of the operations that use it
        self._taken: dict[str, list[tuple[int, int]]] = {}
        for i in range(self.backward, ended):
            for place, tensor in enumerate(self._operations[i].inputs):
                self._taken.setdefault(tensor.name, []).append((i, place))
        self._adding: set[int] = set()  # places of operations that add up the parts of a gradient

    def made_at(self, gradient: Any) -> int:
        """The place of the operation that computes a gradient; the last place if several do.

        If a weight's gradient has several parts, for example one from a regulariser, the tape sums the parts at its
        very end; then this is the place of the last part.
        """
        operation = gradient.op
        while operation.name not in self._place:
            if operation.type not in HANDED_ON:
                return len(self._operations) - 1
            operation = operation.inputs[0].op
        if operation.type != "AddN":
            return self._place[operation.name]
        self._adding.add(self._place[operation.name])
        return max(self._place.get(part.op.name, 0) for part in operation.inputs)

    def crossing(self, since: int, cut: int) -> list[Any]:
        """The tensors computed from `since` to `cut` that the rest of the backward pass needs. Call it after `made_at`
        of all gradients."""
        if not hasattr(tf.Operation, "_update_input"):  # a private method of TensorFlow's, which a release may lack
            return []
        made = (tensor for operation in self._operations[since : cut + 1] for tensor in operation.outputs)
        alike = (tensor for tensor in made if tensor.dtype in TYPES and tensor.shape.is_fully_defined())
        crossing = [tensor for tensor in alike if self._after(tensor, cut)]
        return crossing if len(crossing) <= MOST else []

    def lead(self, tensors: Sequence[Any], by: Sequence[Any], cut: int) -> None:
        """Make the operations after `cut` use the tensors `by` in place of `tensors`."""
        for tensor, other in zip(tensors, by, strict=True):
            for i, place in self._after(tensor, cut):
                self._operations[i]._update_input(place, other)
                self._taken[tensor.name].remove((i, place))

    def _after(self, tensor: Any, cut: int) -> list[tuple[int, int]]:
        """(place, input number) of the operations after `cut` that use the tensor. Operations that only sum the parts
        of a gradient do not count."""
        return [(i, place) for i, place in self._taken.get(tensor.name, ()) if i > cut and i not in self._adding]
