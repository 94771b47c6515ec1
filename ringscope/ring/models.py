"""What a Keras model holds that ring asks for: optimizers and weights; and what ring keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Kept:
    """What ring keeps of one model. Keras neither tracks it nor saves it, and a copy of the model begins anew."""

    step: str | None = None  # how its steps are taken; None: ring.distribute has not seen it
    loop: Any = None  # of its train steps (`Loop`)
    watch: Any = None  # what its ranks watch while they train (`Watch`)
    listing: Any = None  # within `fit`: (how its callbacks are listed, the part of a `fit` that it is)
    warm_up: Callable[[int], None] | None = None  # to be told the steps of an epoch by the first `fit`
    batches: str | None = None  # how the ranks' batches differ (`sizes`)
    ends_unknown = False  # whether one rank's data may end first
    weights: int | None = None  # how many there were when `broadcast` made them equal
    compared: Any = None  # its weights for comparisons (`Compared`)
    statistics_alike_at: int | None = None  # how many steps its optimizers had taken
    built_for: Any = None  # the losses for which the variables of a step were made
    draws: dict[Any, Any]  # generators of `tf.random`, by the seed of an operation and which of that seed it is
    elastic: Any = None  # (which model of the script it is, commit_steps)

    def __init__(self) -> None:
        self.draws = {}

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


def kept(model: Any) -> Kept:
    """The same object each time."""
    found: Kept = vars(model).setdefault("kept_by_ring", Kept())
    return found


def optimizers_of(model: Any, *, of_parts: bool = True) -> list[Any]:
    """The optimizers among a model's attributes (models with a train step of their own may have several), then the
    optimizers of models that are parts of it."""
    from keras.optimizers import Optimizer

    found: dict[int, Any] = {}
    for each in model._flatten_layers() if of_parts else [model]:
        held = vars(each).values() if hasattr(each, "compile") else ()
        for value in held:
            found |= {id(one): one for one in _held_in(value) if isinstance(one, Optimizer)}
    return list(found.values())


def _held_in(value: Any) -> list[Any]:
    """What lists, tuples and dictionaries hold, also within each other."""
    if isinstance(value, dict):
        value = list(value.values())
    return [each for one in value for each in _held_in(one)] if isinstance(value, (list, tuple)) else [value]


def without_loss_scale(optimizer: Any) -> Any:
    """The optimizer within the one that scales losses (float16); itself where there is none."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def is_default(model: Any, optimizer: Any) -> bool:
    """True if `compile` made it without being asked to: a model with optimizers of its own does not use it."""
    config = getattr(getattr(model, "_compile_config", None), "config", {})
    return optimizer is getattr(model, "optimizer", None) and config.get("optimizer") == "rmsprop"


def used_by_step(model: Any) -> list[Any]:
    """The optimizers that the model's own train step updates by."""
    own = optimizers_of(model, of_parts=False)
    return [each for each in own if len(own) == 1 or not is_default(model, each)]


def is_distributed(model: Any) -> bool:
    """True if its optimizers are ones that `ring.distribute` has seen; `model.compile` brings one that it has not."""
    return all(map(is_seen, optimizers_of(model)))


def is_seen(optimizer: Any) -> bool:
    return getattr(optimizer, "distributed_by_ring", False) is True


def parts_of(optimizer: Any) -> Any | None:
    """Which parts of its state this rank has (`Parts`); None unless it is sharded."""
    return getattr(optimizer, "parts_by_ring", None)


def has_weights(model: Any) -> bool:
    """True if its weights exist yet. A model that is never called, such as a GAN of two others, is never `built`."""
    return model.built or (bool(model.layers) and all(layer.built for layer in model.layers))


def began_alike(model: Any) -> bool:
    """True if all weights that it has were there when `broadcast` made them equal."""
    return kept(model).weights == len(model.weights)
