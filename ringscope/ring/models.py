"""The optimizers and weights of a Keras model, and the state that ring keeps for it."""

from __future__ import annotations

from typing import Any

from profiles.ground.errors import RingscopeError

# how the sizes of the ranks' batches in a step compare
ALIKE = "of one shape"
EVEN = "of as many samples"
UNEVEN = "of unlike sizes"  # the sizes differ, or are not known
SUMS = "sums_by_ring"  # name of ring's own variables that hold sums of one rank


class Kept:
    """The state that ring keeps for one model. Keras neither tracks nor saves it, and a copy of the model starts
    without it."""

    step: str | None = None  # kind of the model's step; None: the model was not given to ring.distribute
    loop: Any = None  # the loop of the model's train steps (`Loop`)
    watch: Any = None  # the `Watch` that makes the model's ranks act together
    listing: Any = None  # within `fit`: (function that lists the callbacks, part of an elastic `fit` or None)
    warm_up: Any = None  # the callback that raises the learning rates in the first epochs (`WarmUp`)
    scales_rate = False  # True if the learning rates were multiplied by the number of ranks
    batches = EVEN  # ALIKE, EVEN or UNEVEN, as `fit` has found; EVEN without `fit`, as in a user's own loop
    in_step = False  # True within a train step of `fit` or `train_on_batch`
    ends_unknown = False  # True if one rank's data may end before the others'
    weights: int | None = None  # number of weights when `broadcast` made them equal
    compared: Any = None  # the model's weights for comparisons over ranks (`Compared`)
    statistics_alike_at: int | None = None  # number of steps when the moving statistics were last equal on all ranks
    built_for: Any = None  # the compiled losses for which a step's variables were created
    draws: dict[Any, Any]  # seed generators of `tf.random`, by (seed, number of the operation with that seed)
    elastic: Any = None  # (which call of ring.distribute it was, as a number; commit_steps)

    def __init__(self) -> None:
        self.draws = {}

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()


def kept(model: Any) -> Kept:
    """The state that ring keeps for the model, the same object at each call."""
    found: Kept = vars(model).setdefault("kept_by_ring", Kept())
    return found


def optimizers_of(model: Any, *, of_parts: bool = True) -> list[Any]:
    """The optimizers among a model's attributes (a model with its own train step may have several); then, with
    `of_parts`, those of the models inside it."""
    from keras.optimizers import Optimizer

    found: dict[int, Any] = {}
    for each in model._flatten_layers() if of_parts else [model]:
        held = vars(each).values() if hasattr(each, "compile") else ()
        for value in held:
            found |= {id(one): one for one in _held_in(value) if isinstance(one, Optimizer)}
    return list(found.values())


def _held_in(value: Any) -> list[Any]:
    """The values in nested lists, tuples and dictionaries; any other value as a list of one."""
    if isinstance(value, dict):
        value = list(value.values())
    return [each for one in value for each in _held_in(one)] if isinstance(value, (list, tuple)) else [value]


def without_loss_scale(optimizer: Any) -> Any:
    """The optimizer inside a loss-scaling one (float16); the optimizer itself if there is none."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def is_default(model: Any, optimizer: Any) -> bool:
    """True if `compile` created this optimizer by default; a model with other optimizers does not use it."""
    config = getattr(getattr(model, "_compile_config", None), "config", {})
    return optimizer is getattr(model, "optimizer", None) and config.get("optimizer") == "rmsprop"


def used_by_step(model: Any) -> list[Any]:
    """The optimizers with which the model's own train step updates weights."""
    own = optimizers_of(model, of_parts=False)
    return [each for each in own if len(own) == 1 or not is_default(model, each)]


def is_distributed(model: Any) -> bool:
    """True if `ring.distribute` has seen all optimizers of the model; `model.compile` brings a new one."""
    return all(map(is_seen, optimizers_of(model)))


def check_distributed(model: Any) -> None:
    """Raise RingscopeError if the model has an optimizer that `ring.distribute` has not seen."""
    if not is_distributed(model):
        raise RingscopeError("the model was compiled again, with another optimizer; call ring.distribute(model) again")


class _SinceApplied:
    averaged = False  # True if gradients have been averaged since an optimizer last applied some


since_applied = _SinceApplied()


def is_seen(optimizer: Any) -> bool:
    return getattr(optimizer, "distributed_by_ring", False) is True


def parts_of(optimizer: Any) -> Any | None:
    """The `Parts` of a sharded optimizer's state; None if the optimizer is not sharded."""
    return getattr(optimizer, "parts_by_ring", None)


def has_weights(model: Any) -> bool:
    """True if the model's weights exist. A model that is never called, such as a GAN of two other models, is never
    `built`."""
    return model.built or (bool(model.layers) and all(layer.built for layer in model.layers))


def began_alike(model: Any) -> bool:
    """True if all weights of the model existed when `broadcast` made them equal."""
    return kept(model).weights == len(model.weights)
