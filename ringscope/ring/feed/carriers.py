"""A batch of any structure as arrays that can be staged, and back into what the model expects.

TensorFlow keeps int32 tensors of a GPU's functions in host memory and copies tensors from elsewhere back to it; and
DLPack has no bfloat16 in NumPy. Such values travel as another type of the same width and are read as their own inside
the step, which costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..internals.frameworks import tf

CARRIERS = {
    tf.int32: tf.float32,
    tf.uint32: tf.float32,
    tf.bool: tf.uint8,
    tf.bfloat16: tf.float16,
    **{t: t for t in (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int64, tf.float16, tf.float32, tf.float64)},
}
AS_IT_IS = ""  # the kind of a leaf that is not staged: strings, ragged and sparse tensors, None

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Carried:
    """A batch whose staged leaves are tensors of their carriers' types; `kinds` are the leaves' own types, in order.
    shapes: of all leaves; None where some are not staged. To ask the tensors takes longer, since threads stage others
    meanwhile."""

    structure: Any
    leaves: list[Any]
    kinds: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] | None

    @property
    def data(self) -> Any:
        """The leaves in the structure that the iterator gave them in."""
        return tf.nest.pack_sequence_as(self.structure, self.leaves)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on the host, as an iterator gave it: its leaves in order, as arrays where they can be staged."""

    structure: Any
    leaves: list[Any]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, element: Any) -> Batch:
        leaves, kinds = [], []
        for leaf in tf.nest.flatten(element):
            array = _array(leaf)
            leaves.append(without_optional(leaf) if array is None else array)
            kinds.append(AS_IT_IS if array is None else str(_dtype(leaf).name))
        return cls(element, leaves, tuple(kinds))

    @property
    def arrays(self) -> list[Array]:
        """What is to be staged: contiguous arrays of the carriers' types."""
        return [leaf for leaf, kind in zip(self.leaves, self.kinds, strict=True) if kind]

    def numbers(self, leaf: int) -> Array | None:
        """A leaf that is staged, as the iterator gave it; None of another."""
        return self.leaves[leaf].view(self.kinds[leaf]) if self.kinds[leaf] not in (AS_IT_IS, "bfloat16") else None

    def carried(self, tensors: list[Any]) -> Carried:
        """The batch with these tensors in the place of its arrays."""
        staged = iter(tensors)
        leaves = [next(staged) if kind else leaf for leaf, kind in zip(self.leaves, self.kinds, strict=True)]
        shapes = tuple(leaf.shape for leaf in self.leaves) if all(self.kinds) else None
        return Carried(self.structure, leaves, self.kinds, shapes)


def data_of(batch: Any) -> Any:
    """A batch of any feed as the iterator gave it, but for its carriers."""
    return batch.data if isinstance(batch, Carried) else batch


def leaves_of(batch: Any) -> list[Any]:
    return batch.leaves if isinstance(batch, Carried) else tf.nest.flatten(batch)


def without_optional(leaf: Any) -> Any:
    """Keras's data sets hold an empty Optional where the user gave None."""
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def _dtype(leaf: Any) -> Any:
    return tf.as_dtype(leaf.dtype)


def _array(leaf: Any) -> Array | None:
    """The leaf's memory as its carrier's type, without a copy where there is a way; None where it cannot be staged."""
    if not isinstance(leaf, (tf.Tensor, np.ndarray)) or _dtype(leaf) not in CARRIERS:
        return None
    if isinstance(leaf, np.ndarray):
        array = np.ascontiguousarray(leaf)
    elif leaf.dtype == tf.bfloat16:
        array = leaf.numpy()
    else:
        array = np.asarray(memoryview(leaf))  # Tensor.numpy() would copy it
    return array.view(CARRIERS[_dtype(leaf)].as_numpy_dtype) if array.size and array.ndim else None


def opened(data: Any, kinds: tuple[str, ...] | None) -> Any:
    """The batch as the iterator gave it, of one in carriers; inside the step."""
    if kinds is None:
        return tf.nest.map_structure(without_optional, data)
    leaves = tf.nest.flatten(data)
    return tf.nest.pack_sequence_as(
        data, [_opened(leaf, kind) if kind else leaf for leaf, kind in zip(leaves, kinds, strict=True)]
    )


def _opened(leaf: Any, kind: str) -> Any:
    own = tf.as_dtype(kind)
    if leaf.dtype == own:
        return leaf
    return tf.cast(leaf, own) if own == tf.bool else tf.bitcast(leaf, own)
