"""Moving statistics and other weights that no optimizer trains. Each rank computes its own from its batches, so they
must be equal on all ranks only until a step is taken."""

from __future__ import annotations

from typing import Any

from ..global_batch.moving_statistics import average_statistics, is_stateful
from ..internals.frameworks import hvd
from ..models import began_alike, kept, optimizers_of
from .weights import check_weights_now, weights_digest


def untrained_weights(model: Any) -> list[Any]:
    """The weights to compare: all that no optimizer trains, except random generators, which differ by rank."""
    return [each for each in model.non_trainable_weights if not each.path.endswith("seed_generator_state")]


def alike_now(model: Any) -> None:
    kept(model).statistics_alike_at = _steps(model)


def digest(model: Any) -> list[int] | None:
    """A digest of this rank's weights that no optimizer trains; None if they need not be equal, because a step was
    taken."""
    variables = untrained_weights(model)
    if not variables or hvd.size() == 1 or not _are_to_be_alike(model):
        return None
    own: list[int] = weights_digest(variables).numpy().tolist()
    return own


def average(model: Any, when: str) -> None:
    """Average over ranks the weights that no optimizer trains, and print a line on weights that only one rank had set.
    Call it on all ranks. Raises RingscopeError if their trained weights differ. when: says in these lines what for."""
    check_weights_now(model, when)
    average_statistics(model, set_by_one=when if _are_to_be_alike(model) else "")
    alike_now(model)


def _are_to_be_alike(model: Any) -> bool:
    return began_alike(model) and not is_stateful(model) and _steps(model) == kept(model).statistics_alike_at


def _steps(model: Any) -> int:
    return sum(int(optimizer.iterations) for optimizer in optimizers_of(model))
