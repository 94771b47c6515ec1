"""Weights that one rank alone has changed, before `fit` or in a callback at its end: all ranks continue with equal
weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..alike.statistics import untrained_weights
from ..alike.weights import compared, differing_weight, weights_now
from ..exchange import from_rank
from ..global_batch.moving_statistics import unlike_before
from ..models import began_alike
from ..say import once

Digests = Sequence[list[int] | None]
"""Digests of the weights, one per rank; None: unchanged since the last comparison."""


def say_parted(model: Any, digests: Digests, of_statistics: Digests) -> None:
    """Print a line if the ranks begin `fit` with different weights, because all will use rank 0's."""
    if not began_alike(model):
        return
    differing = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if differing:
        once(
            f"the weights of model {model.name!r} differ between rank 0 and rank {differing[0]} before fit: something "
            "other than the distributed optimizer has updated them, or set them on one rank only. All ranks go on with"
            " rank 0's weights"
        )
    elif None not in of_statistics and (unlike := differing_weight(np.array(of_statistics))) is not None:
        once(
            unlike_before(untrained_weights(model)[unlike[0]].path, "before fit")
            + "All ranks go on with rank 0's value"
        )


def take_changed(model: Any, digests: Digests) -> None:
    """If callbacks at the end of `fit` have changed the weights of some ranks alone (EarlyStopping with
    restore_best_weights), all ranks take the weights of the first of these ranks."""
    if all(digest == digests[0] for digest in digests):
        return
    first = next(rank for rank, digest in enumerate(digests) if digest is not None)
    model.set_weights(from_rank(first, model.get_weights()))
    once(
        f"callbacks have changed the weights at the end of fit on rank {first}, differently from the others; all "
        "ranks now use that rank's weights"
    )
    weights = weights_now(model)
    if weights is not None:
        compared(model).found_equal(weights.variables, weights.digest.numpy().tolist())
