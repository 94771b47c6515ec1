"""Find ids for which an embedding has no row, on the host: a compiled step would silently read the last row instead.

Only ids that are an unchanged input of the model are checked; ids that layers compute are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.ground.errors import RingscopeError

from ..internals import seams


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of an embedding in a batch: the index of the batch's leaf that holds them, and the embedding's number of
    rows."""

    leaf: int
    rows: int
    layer: str

    def check(self, ids: Any) -> None:
        """Raise RingscopeError if the embedding has no row for one of the ids. ids: an array, or None."""
        if ids is None or not ids.size or ids.dtype.kind not in "iu":
            return
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= self.rows:
            wrong = lowest if lowest < 0 else highest
            raise RingscopeError(
                f"id {wrong} in a batch, and embedding {self.layer!r} has rows 0 to {self.rows - 1}; the compiled step"
                " would silently read another row: correct the ids, or give the embedding more rows"
            )


def of_model(model: Any, spec: Any) -> list[Ids]:
    """The leaves with ids among the inputs of a model that is made of layers. spec: the element spec of its data,
    (inputs, ...)."""
    from keras import layers, tree
    from keras.src.models.functional import Functional

    made = getattr(model, "_functional", None) or model
    if not isinstance(made, Functional) or not seams.has("a check of embeddings' ids"):
        return []
    given, taken = spec[0] if isinstance(spec, tuple) else spec, made._inputs_struct
    if _names(given) != _names(taken) or len(tree.flatten(given)) != len(tree.flatten(taken)):
        return []
    places = {id(tensor): place for place, tensor in enumerate(tree.flatten(taken))}
    return [
        Ids(places[id(tensor)], int(layer.input_dim), layer.name)
        for layer in made.layers
        if isinstance(layer, layers.Embedding)
        for node in layer._inbound_nodes
        for tensor in node.input_tensors
        if id(tensor) in places
    ]


def _names(structure: Any) -> list[str]:
    return sorted(structure) if isinstance(structure, dict) else []
