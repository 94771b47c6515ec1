"""Keep with the model how the sizes of the ranks' batches in a step compare, as `fit` finds out before training."""

from __future__ import annotations

from typing import Any

from ..models import kept

ALIKE = "of one shape"
EVEN = "of as many samples"
UNEVEN = "of unlike sizes"  # the sizes differ, or are not known


def tell(model: Any, what: str) -> None:
    kept(model).batches = what


def told(model: Any) -> str:
    """ALIKE, EVEN or UNEVEN, as `fit` has found for this model; EVEN without `fit`, as in a user's own loop."""
    return kept(model).batches or EVEN
