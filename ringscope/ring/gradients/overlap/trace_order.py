"""The order of a traced step's operations, and what the rest of its backward pass begins with.

TensorFlow's tape makes a layer's gradients where it comes to the layer. XLA goes by memory, and leaves the products
that are gradients of weights for the program's end, where nothing is left to run beside their exchange. So the rest of
the backward pass is led through each exchange's beginning, and XLA cannot take it before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...internals.frameworks import tf
from ...internals.stablehlo import TYPES

OF_TAPE = "gradient_tape/"  # in the names of what a tape computes
HANDED_ON = ("Cast", "Identity", "Reshape")  # what may lie between a gradient and what travels
MOST = 64  # tensors that are led through one exchange


class Traced:
    """The operations of the graph at hand. ended: their number when the gradients were complete."""

    def __init__(self, ended: int) -> None:
        self._operations = tf.compat.v1.get_default_graph().get_operations()[:ended]
        self._place = {operation.name: i for i, operation in enumerate(self._operations)}
        of_tape = (i for i, operation in enumerate(self._operations) if OF_TAPE in operation.name)
        self.backward = next(of_tape, ended)  # where the backward pass begins
        self._taken: dict[str, list[tuple[int, int]]] = {}  # by tensor: (place, input) of the operations that take it
        for i in range(self.backward, ended):
            for place, tensor in enumerate(self._operations[i].inputs):
                self._taken.setdefault(tensor.name, []).append((i, place))
        self._adding: set[int] = set()  # places of what adds up a gradient

    def made_at(self, gradient: Any) -> int:
        """The place of the operation that computes it; the end where that is several. What a weight gets by several
        ways, such as by a regulariser, the tape adds up at its end; there it is made with the last of the parts."""
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
        """What operations from `since` to `cut` have computed that the rest of the backward pass takes. To be asked
        after all gradients' places."""
        if not hasattr(tf.Operation, "_update_input"):  # which is not public
            return []
        made = (tensor for operation in self._operations[since : cut + 1] for tensor in operation.outputs)
        alike = (tensor for tensor in made if tensor.dtype in TYPES and tensor.shape.is_fully_defined())
        crossing = [tensor for tensor in alike if self._after(tensor, cut)]
        return crossing if len(crossing) <= MOST else []

    def lead(self, tensors: Sequence[Any], by: Sequence[Any], cut: int) -> None:
        """Have the operations after `cut` take the tensors of `by` in the place of `tensors`."""
        for tensor, other in zip(tensors, by, strict=True):
            for i, place in self._after(tensor, cut):
                self._operations[i]._update_input(place, other)
                self._taken[tensor.name].remove((i, place))

    def _after(self, tensor: Any, cut: int) -> list[tuple[int, int]]:
        """The operations that take it after `cut`. Operations that add up a gradient are no part of the backward pass's
        rest."""
        return [(i, place) for i, place in self._taken.get(tensor.name, ()) if i > cut and i not in self._adding]
