"""The number of steps, epochs and validations of each rank: all ranks must agree on them before the first step."""

from __future__ import annotations

import math
from typing import Any

import keras

from profiles.ground.errors import RingscopeError

from ..data import samples
from ..internals.frameworks import hvd, tf
from ..ranks import stopping
from ..ranks.channel import Channel

UNKNOWN = -1


def agree(options: dict[str, Any], channel: Channel | None) -> bool:
    """Raise RingscopeError if some ranks would wait for others forever. Returns True if some rank's number of steps is
    unknown until its data ends."""
    if hvd.size() == 1:
        return steps(options) == UNKNOWN
    validates = options.get("validation_data") is not None or bool(options.get("validation_split"))
    mine = [steps(options), int(options.get("epochs", 1)), int(validates)]
    of_epoch, epochs, validations = map(list, zip(*stopping.everybodys(channel, "plan", mine), strict=True))
    _check_alike(of_epoch, "steps an epoch", "give all ranks data of the same length, or the same steps_per_epoch")
    _check_alike(epochs, "epochs", "give all ranks the same number")
    _check_alike(validations, "validations an epoch", "give validation_data to all ranks, or to none")
    return UNKNOWN in of_epoch


def _check_alike(counts: list[int], what: str, remedy: str) -> None:
    known = [(rank, count) for rank, count in enumerate(counts) if count != UNKNOWN]
    if len({count for _, count in known}) > 1:
        (least, fewest), (most, largest) = (choose(known, key=lambda pair: pair[1]) for choose in (min, max))
        raise RingscopeError(
            f"rank {least} has {fewest} {what} and rank {most} has {largest}: rank {most} would wait for ever; {remedy}"
        )


def steps(options: dict[str, Any]) -> int:
    """This rank's steps in an epoch; UNKNOWN if only the end of the data shows it."""
    x = options.get("x")
    if options.get("steps_per_epoch"):
        return int(options["steps_per_epoch"])
    if isinstance(x, tf.data.Dataset):
        return max(UNKNOWN, int(x.cardinality()))
    if isinstance(x, keras.utils.PyDataset):
        batches = x.num_batches
        return UNKNOWN if batches is None else int(batches)
    first = next((leaf for leaf in keras.tree.flatten(x) if hasattr(leaf, "shape")), None)
    if first is None:
        return UNKNOWN
    trained = math.floor(samples.length(first) * (1 - (options.get("validation_split") or 0)))
    return math.ceil(trained / (options.get("batch_size") or 32))
