"""The form in which gradients travel in a compiled step: in which types, which of them as rows, which joined in one
vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..internals.frameworks import tf
from . import float8_scales
from .embedding_rows import Rows
from .packing import Packing
from .types import as_computed


class Outgoing:
    """The form in which the gradients of one update travel.

    keeps: True if gradients computed in bfloat16 travel as bfloat16. narrow: the type in which gradients travel; None:
    their own. as_rows: True if embeddings' gradients travel as rows where these are smaller (`embedding_rows`).
    averages: True if the exchange divides by the number of ranks. packs: True if small gradients travel as one vector
    (`packing`).
    """

    def __init__(self, *, keeps: bool, narrow: Any | None, as_rows: bool, averages: bool, packs: bool) -> None:
        self._keeps, self._narrow, self._packs = keeps, narrow, packs
        self._rows, self._packing = Rows(as_rows, averages=averages, keeps=keeps), Packing()
        self.largest: list[int] = []
        """Places of the values whose maximum over ranks is taken, not the mean (`float8_scales`)."""

    def typed(self, gradients: Sequence[Any], variables: Sequence[Any], *, alike: bool) -> list[Any]:
        """The gradients, all dense, in the types in which they travel; None stays None. alike: True if the ranks'
        batches have one shape.

        IndexedSlices do not travel, for two reasons. XLA sums rows of equal index in any order, so ranks that each sum
        the gathered rows would differ in the last bits. Between two programs, IndexedSlices would also send the table's
        shape through the host, which waits for it: a fifth of a decoder's step on an H200.
        """
        dense = self._rows.pack(gradients, variables, alike=alike)
        if self._keeps:
            dense = [as_computed(g) for g in dense]
        self.largest = float8_scales.places(variables)
        if not self._narrow:
            return dense
        return [g if g is None or i in self.largest else tf.cast(g, self._narrow) for i, g in enumerate(dense)]

    def pack(self, typed: list[Any]) -> list[Any]:
        """The tensors that travel, from the gradients that `typed` gave. Afterwards `largest` holds places in this
        list."""
        if not self._packs:
            return typed
        packed, self.largest = self._packing.pack(typed, self.largest)
        return packed

    def unpack(self, sums: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients in the variables' types, ready for the update, from the tensors of `pack` summed over ranks."""
        own = self._rows.unpack(self._packing.unpack(sums))
        return [None if g is None else tf.cast(g, v.dtype) for g, v in zip(own, variables, strict=True)]
