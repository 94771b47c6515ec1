"""Detect changes that a train step makes to its gradients before an optimizer takes them.

Gradients that each rank scales or adds up may be averaged over ranks afterwards. Gradients that each rank clips by its
own norm, projects, or scales by what it computes from its own batch, may not: their average is not the joined batch's
gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..internals.frameworks import tf

SUMS = ("AddN", "AddV2", "Sub", "Neg", "Sum", "Mean", "Identity", "IdentityN", "StopGradient", "Cast")
IN_ANOTHER_SHAPE = ("Reshape", "Transpose", "ExpandDims", "Squeeze", "ConcatV2", "Split", "SplitV", "Pack", "Unpack")
PARTS = ("Slice", "StridedSlice", "Tile", "BroadcastTo")
PRODUCTS = ("Mul", "MulNoNan", "MatMul", "BatchMatMulV2", "Einsum")
QUOTIENTS = ("RealDiv", "DivNoNan")
OF_BATCH = "of this rank's batch"
NO_NUMBERS = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")


class Gradients:
    """The gradients that a traced step takes, and the tensors that the step computes from them."""

    def __init__(self, batch: Iterable[Any]) -> None:
        # Tensor's name -> True: computed from gradients by sums and factors only; False: otherwise; OF_BATCH: not from
        # gradients, but from this rank's batch; None: from neither.
        self._known: dict[str, bool | str | None] = {tensor.name: OF_BATCH for tensor in _values(batch)}

    def taken(self, gradients: Iterable[Any]) -> None:
        for tensor in _values(gradients):
            self._known.setdefault(tensor.name, True)

    def are_changed(self, applied: Iterable[Any]) -> bool:
        """True if one of `applied` was computed from gradients by more than sums and factors."""
        return any(self._follow(tensor) is False for tensor in _values(applied))

    def _follow(self, tensor: Any) -> bool | str | None:
        waiting = [tensor]
        while waiting:
            op = waiting[-1].op
            if waiting[-1].name in self._known:
                waiting.pop()
            elif unknown := [each for each in op.inputs if each.name not in self._known]:
                waiting += unknown
            else:
                found = _made_by(op.type, [self._known[each.name] for each in op.inputs])
                self._known |= {each.name: found for each in op.outputs if each.name not in self._known}
        return self._known[tensor.name]


def _made_by(kind: str, given: Sequence[bool | str | None]) -> bool | str | None:
    # Horovod's outputs cover all ranks, so everything computed from them is right for the joined batch.
    if kind in NO_NUMBERS or kind.startswith("Horovod"):
        return None
    of_gradients = [each for each in given if isinstance(each, bool)]
    if not of_gradients:
        return OF_BATCH if OF_BATCH in given else None
    if not all(of_gradients):
        return False
    if kind in PRODUCTS:
        return len(of_gradients) == 1 and OF_BATCH not in given
    return kind in SUMS + IN_ANOTHER_SHAPE + PARTS or (kind in QUOTIENTS and given[1] is None)


def _values(gradients: Iterable[Any]) -> list[Any]:
    found = [each.values if isinstance(each, tf.IndexedSlices) else each for each in gradients]
    return [each for each in found if isinstance(each, tf.Tensor) and hasattr(each, "op")]
