"""Gradients as they travel in a compiled step, and back: in which types, which as rows, which side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..internals.frameworks import tf
from . import float8_scales
from .embedding_rows import Rows
from .packing import Packing
from .types import as_computed


class Outgoing:
    """The gradients of one update.

    keeps: gradients computed in bfloat16 travel as bfloat16. narrow: the type that float32 travels as; None: as it is.
    as_rows: embeddings' gradients travel as rows if these are fewer (`embedding_rows`). averages: all are divided by
    the number of ranks. packs: small ones travel as one vector (`packing`).
    """

    def __init__(self, *, keeps: bool, narrow: Any | None, as_rows: bool, averages: bool, packs: bool) -> None:
        self._keeps, self._narrow, self._packs = keeps, narrow, packs
        self._rows, self._packing = Rows(as_rows, averages=averages, keeps=keeps), Packing()
        self.largest: list[int] = []
        """Places of the gradients whose largest value over ranks counts, not the mean (`float8_scales`)."""

    def typed(self, gradients: Sequence[Any], variables: Sequence[Any], *, alike: bool) -> list[Any]:
        """All dense and in the types that they travel as; None stays None. alike: the ranks' batches are of one shape.

        No IndexedSlices: XLA adds rows of one index in any order, so that ranks which each add what they have gathered
        end apart in the last bits; and between two programs they would bring their table's shape through the host,
        which waits for it: a fifth of a decoder's step on an H200.
        """
        dense = self._rows.pack(gradients, variables, alike=alike)
        if self._keeps:
            dense = [as_computed(g) for g in dense]
        self.largest = float8_scales.places(variables)
        if not self._narrow:
            return dense
        return [g if g is None or i in self.largest else tf.cast(g, self._narrow) for i, g in enumerate(dense)]

    def pack(self, typed: list[Any]) -> list[Any]:
        """The tensors that travel, from the ones that `typed` gave; `largest` has the places of the latter among
        them."""
        if not self._packs:
            return typed
        packed, self.largest = self._packing.pack(typed, self.largest)
        return packed

    def unpack(self, sums: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Of what `pack` gave and the ranks have summed: gradients in the variables' types, as an update takes them."""
        own = self._rows.unpack(self._packing.unpack(sums))
        return [None if g is None else tf.cast(g, v.dtype) for g, v in zip(own, variables, strict=True)]
