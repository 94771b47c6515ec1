"""Join small gradients into one vector, in which they travel in a compiled step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..internals.frameworks import tf
from .types import size_bytes

LARGE_BYTES = 1 << 20  # bytes; a gradient of this size or more travels alone


class Packing:
    """Joins the small dense gradients of each type into one vector: ranks have one tensor to agree on instead of many.

    Other gradients travel beside it, and large ones without a copy: the edited Horovod lets NCCL sum them in place
    (scripts/horovod_edits.py). To copy a decoder's 537 MB into a vector took 1.0 ms of its 36 ms step (docs/results).
    """

    def __init__(self) -> None:
        self._shapes: list[dict[int, Any]] = []  # for each vector: place of a gradient -> its shape
        self._count = 0

    def pack(self, gradients: list[Any], apart: Sequence[int]) -> tuple[list[Any], list[int]]:
        """(the vectors, then all other gradients, `apart` included; the places of `apart` in that list)."""
        dense = {i: g for i, g in enumerate(gradients) if isinstance(g, tf.Tensor) and g.shape.is_fully_defined()}
        small = {i: g for i, g in dense.items() if size_bytes(g) < LARGE_BYTES and i not in apart}
        kinds = dict.fromkeys(g.dtype for g in small.values())
        self._shapes = [{i: g.shape for i, g in small.items() if g.dtype == kind} for kind in kinds]
        self._count = len(gradients)
        vectors = [tf.concat([tf.reshape(gradients[i], [-1]) for i in shapes], axis=0) for shapes in self._shapes]
        others = [i for i in range(len(gradients)) if i not in small]
        places = [len(vectors) + place for place, i in enumerate(others) if i in apart]
        return [*vectors, *(gradients[i] for i in others)], places

    def unpack(self, gradients: Sequence[Any]) -> list[Any]:
        if not self._shapes:
            return list(gradients)
        vectors, others = gradients[: len(self._shapes)], iter(gradients[len(self._shapes) :])
        packed: dict[int, Any] = {}
        for vector, shapes in zip(vectors, self._shapes, strict=True):
            parts = tf.split(vector, [shape.num_elements() for shape in shapes.values()])
            packed |= {i: tf.reshape(part, shape) for part, (i, shape) in zip(parts, shapes.items(), strict=True)}
        return [packed[i] if i in packed else next(others) for i in range(self._count)]
