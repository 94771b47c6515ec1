"""Turn a batch of any structure into arrays that can be staged in pinned memory, and back into the model's input.

On a GPU TensorFlow keeps int32 tensors in host memory, and NumPy has no bfloat16 for DLPack. So values of both types
travel as another type of the same width, their carrier, and the step reinterprets the bits at no cost.
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
AS_IT_IS = ""  # kind of a leaf that cannot be staged: strings, ragged and sparse tensors, None

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Carried:
    """A batch whose staged leaves are tensors of their carriers' types; `kinds` are the leaves' own types, in order.

    shapes: of all leaves; None if some are not staged. They are kept because asking the tensors is slower while threads
    stage other batches.
    """

    structure: Any
    leaves: list[Any]
    kinds: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] | None

    @property
    def data(self) -> Any:
        """The leaves, nested as the iterator nests them."""
        return tf.nest.pack_sequence_as(self.structure, self.leaves)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on the host: its leaves in order, as arrays where they can be staged."""

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
        """The contiguous arrays to stage, of the carriers' types."""
        return [leaf for leaf, kind in zip(self.leaves, self.kinds, strict=True) if kind]

    def numbers(self, leaf: int) -> Array | None:
        """A staged leaf's values in its own type; None for a leaf that is not staged or is bfloat16."""
        return self.leaves[leaf].view(self.kinds[leaf]) if self.kinds[leaf] not in (AS_IT_IS, "bfloat16") else None

    def carried(self, tensors: list[Any]) -> Carried:
        """The batch with these tensors in place of its arrays."""
        staged = iter(tensors)
        leaves = [next(staged) if kind else leaf for leaf, kind in zip(self.leaves, self.kinds, strict=True)]
        shapes = tuple(leaf.shape for leaf in self.leaves) if all(self.kinds) else None
        return Carried(self.structure, leaves, self.kinds, shapes)


def data_of(batch: Any) -> Any:
    """The data of a batch of any feed, nested as the iterator nests it; staged leaves keep their carriers' types."""
    return batch.data if isinstance(batch, Carried) else batch


def leaves_of(batch: Any) -> list[Any]:
    return batch.leaves if isinstance(batch, Carried) else tf.nest.flatten(batch)


def without_optional(leaf: Any) -> Any:
    """None for an empty Optional, which Keras's data sets hold where the user gave None; any other leaf unchanged."""
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def _dtype(leaf: Any) -> Any:
    return tf.as_dtype(leaf.dtype)


def _array(leaf: Any) -> Array | None:
    """The leaf's memory as an array of its carrier's type, if possible without a copy; None if it cannot be staged."""
    if not isinstance(leaf, (tf.Tensor, np.ndarray)) or _dtype(leaf) not in CARRIERS:
        return None
    if isinstance(leaf, np.ndarray):
        array = np.ascontiguousarray(leaf)
    elif leaf.dtype == tf.bfloat16:
        array = leaf.numpy()
    else:
        array = np.asarray(memoryview(leaf))  # Tensor.numpy() would copy the memory
    return array.view(CARRIERS[_dtype(leaf)].as_numpy_dtype) if array.size and array.ndim else None


def opened(data: Any, kinds: tuple[str, ...] | None) -> Any:
    """A batch with each leaf in its own type again. Call it inside the step."""
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
