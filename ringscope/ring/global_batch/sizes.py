"""What the ranks' batches of a step are to each other, as `fit` has found before it begins; told of a model."""

from __future__ import annotations

from typing import Any

ALIKE = "of one shape"
EVEN = "of as many samples"
UNEVEN = "of unlike sizes"  # or nobody knows

_TOLD = "batches_by_ring"  # a model's attribute


def tell(model: Any, what: str) -> None:
    model.__dict__[_TOLD] = what


def told(model: Any) -> str:
    """EVEN where nobody has told: in a loop of the user's own."""
    return str(model.__dict__.get(_TOLD, EVEN))
