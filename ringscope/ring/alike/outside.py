"""Variables that a train step reads outside its model, such as a table of class centres: ring leaves them to the
script, and prints a line if the ranks' values differ."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ..exchange import from_all
from ..global_batch.metrics import flat_metrics
from ..models import SUMS, kept, optimizers_of, parts_of
from ..say import once


def variables_of(model: Any) -> list[Any]:
    """The floating-point variables in the graphs of the model's train step that belong to neither the model, its
    metrics and optimizers, nor ring. Those of other types are left out: most are seeds and counters."""
    optimizers = optimizers_of(model)
    holders = [model, *flat_metrics(model), *optimizers]
    owned = [variable for holder in holders for variable in holder.variables]
    owned += [segment for optimizer in optimizers if (parts := parts_of(optimizer)) for segment in parts.segments]
    known = {id(variable.value) for variable in owned}
    return [
        each
        for each in kept(model).loop.variables()
        if id(each) not in known and each.dtype.is_floating and not each.name.startswith(SUMS)
    ]


def one_number(digests: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(1,) int64: the digests of all these variables together, however many there are."""
    total: np.ndarray[Any, Any] = digests.sum(keepdims=True, dtype=np.int64)
    return total


def say_unlike(variables: list[Any], digests: np.ndarray[Any, Any]) -> None:
    """Print a line on the variables that differ between ranks. Call it on all ranks."""
    own: defaultdict[str, list[int]] = defaultdict(list)
    for digest, variable in sorted(zip(digests.tolist(), variables, strict=True), key=lambda pair: pair[0]):
        own[f"{variable.name.partition(':')[0]!r} of shape {tuple(variable.shape)}"].append(digest)
    everybodys = from_all(dict(own), "outside")
    # another rank's trace may read other variables
    on_all = [name for name in everybodys[0] if all(name in theirs for theirs in everybodys)]
    unlike = [name for name in on_all if any(theirs[name] != everybodys[0][name] for theirs in everybodys)]
    if unlike:
        once(
            f"the train step reads {', '.join(sorted(unlike))}, which the model does not hold, so ring does not join"
            " the ranks' values, and they differ. To have one value on all ranks, update it from ring.sum or ring.mean,"
            " or let the model hold it (a metric, a weight that is not trained)"
        )
