"""A model cut along its layers into stages of equal work, each with weights of its own on a device of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import Unsupported


@dataclass(frozen=True, slots=True)
class Point:
    """A place where a model can be cut: after an operation whose output is all that the rest needs."""

    tensor: Any
    work: int  # of everything up to here: multiplications and values of one sample


def points(model: Any) -> list[Point]:
    """The points of a functional model, each operation of which is called once, first to last; the last is its end."""
    found, alive, work = [], [], 0
    users: dict[int, int] = {}
    for operation in model.operations:
        for tensor in _tensors(operation, "input"):
            users[id(tensor)] = users.get(id(tensor), 0) + 1
    for operation in model.operations:
        if _is_input(operation):
            alive = _tensors(operation, "output")
            continue
        for tensor in _tensors(operation, "input"):
            users[id(tensor)] -= 1
        alive = [tensor for tensor in alive if users[id(tensor)]] + _tensors(operation, "output")
        work += _work(operation)
        if len(alive) == 1 and users.get(id(alive[0])):
            found.append(Point(alive[0], work))
    found.append(Point(model.output, work))
    return found


def _tensors(operation: Any, side: str) -> list[Any]:
    if _is_input(operation) and side == "input":
        return []
    held = getattr(operation, side)
    return list(held) if isinstance(held, (list, tuple)) else [held]


def _is_input(operation: Any) -> bool:
    return type(operation).__name__ == "InputLayer"


def _work(operation: Any) -> int:
    """Multiplications of one sample, as weights used once per position, and the values that come out.

    A convolution or a dense layer uses its kernel at every position of its output, a recurrent one at every time step
    of its input.
    """
    weights = sum(math.prod(w.shape) for w in getattr(operation, "trainable_weights", ()) if len(w.shape) > 1)
    (outputs,) = _tensors(operation, "output")
    positions = math.prod(outputs.shape[1:-1])
    if hasattr(operation, "cell"):
        positions = _tensors(operation, "input")[0].shape[1]
    return int(weights * positions + math.prod(outputs.shape[1:]))


def balanced(work: Sequence[int], count: int) -> list[int]:
    """The places, ascending, of `count` points of which the last is the end, so that the largest stage is smallest.

    work: of everything up to each point, ascending.
    """
    if len(work) < count:
        most = "one stage" if len(work) == 1 else f"{len(work)} stages"
        raise Unsupported(
            f"this model can be cut into {most} at most, not {count}; take fewer ranks, or another strategy"
        )
    ends = range(len(work))
    # largest[end]: the least possible largest stage of a cut into `stages` whose last ends at `end`, and that cut.
    largest = {end: (work[end], [end]) for end in ends}
    for _ in range(count - 1):
        largest = {
            end: min((max(largest[b][0], work[end] - work[b]), [*largest[b][1], end]) for b in largest if b < end)
            for end in ends
            if any(b < end for b in largest)
        }
    return largest[len(work) - 1][1]


def cut(model: Any, places: Sequence[str]) -> list[Any]:
    """Copies of the model's consecutive parts, each with the same weights on its place. The model is used up."""
    import keras
    import tensorflow as tf

    found = points(model)
    ends = [found[place].tensor for place in balanced([point.work for point in found], len(places))]
    stages = []
    for entrance, end, place in zip([model.input, *ends], ends, places, strict=False):
        part = keras.Model(entrance, end)
        with tf.device(place):
            stage = keras.models.clone_model(part)
        for new, old in zip(stage.variables, part.variables, strict=True):
            new.assign(old)
        stages.append(stage)
    return stages
