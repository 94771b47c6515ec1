"""Cut a model along its layers into stages of equal work; each stage has its weights on a device of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .trainers import Unsupported


@dataclass(frozen=True, slots=True)
class Point:
    """A point at which a model can be cut: after an operation whose output is all that later operations need."""

    tensor: Any
    work: int  # work for one sample up to this point: multiplications plus output values


def points(model: Any) -> list[Point]:
    """The points at which a functional model can be cut, first to last; the last is the model's end. Each operation
    must be called once."""
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
    """The work of an operation for one sample: multiplications (weights times positions) plus output values.

    A convolution or a dense layer uses its kernel at every position of its output, a recurrent layer at every time step
    of its input.
    """
    weights = sum(math.prod(w.shape) for w in getattr(operation, "trainable_weights", ()) if len(w.shape) > 1)
    (outputs,) = _tensors(operation, "output")
    positions = math.prod(outputs.shape[1:-1])
    if hasattr(operation, "cell"):
        positions = _tensors(operation, "input")[0].shape[1]
    return int(weights * positions + math.prod(outputs.shape[1:]))


def balanced(work: Sequence[int], count: int) -> list[int]:
    """The indices, ascending, of the `count` points that cut a model so that the largest stage has the least work. The
    last point is the model's end.

    work: at each point, the work of everything before it, ascending. Raises Unsupported if there are too few points.
    """
    if len(work) < count:
        most = "one stage" if len(work) == 1 else f"{len(work)} stages"
        raise Unsupported(
            f"this model can be cut into {most} at most, not {count}; take fewer ranks, or another strategy"
        )
    ends = range(len(work))
    # largest[end]: (work of the largest stage, cuts) of the best way to cut the model up to point `end` into the
    # present number of stages.
    largest = {end: (work[end], [end]) for end in ends}
    for _ in range(count - 1):
        largest = {
            end: min((max(largest[b][0], work[end] - work[b]), [*largest[b][1], end]) for b in largest if b < end)
            for end in ends
            if any(b < end for b in largest)
        }
    return largest[len(work) - 1][1]


def cut(model: Any, places: Sequence[str]) -> list[Any]:
    """Copies of the model's consecutive stages, each with its weights on a device of `places`. Do not use the model
    afterwards."""
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
