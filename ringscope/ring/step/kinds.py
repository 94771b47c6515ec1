"""The kinds of step: gradients are averaged in the optimizer's `apply`, inside one XLA program, or between two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..feed.carriers import opened
from ..global_batch.loss_kinds import UNSEEN
from ..gradients import float8_scales
from ..gradients.aggregate import Update, aggregated
from ..gradients.average import Exchange
from ..gradients.zero.sharded import Shards
from ..internals.frameworks import hvd
from ..models import kept, without_loss_scale
from ..say import once
from .choose import Chooser, NotOneUpdate
from .exchange_inside import Inside
from .one_program import check_start, in_joined_losses, replace_train_step, taken_whole
from .two_programs import Halves
from .variables import make_variables


def reduce_in_apply(
    model: Any, optimizer: Any, exchange: Exchange, aggregate: int, shards: Shards | None = None
) -> Update:
    """Replace the optimizer's `apply` by one that exchanges gradients first. Returns the original `apply`.

    shards: exchanges and applies the gradients if the optimizer is sharded. With float16 the loss-scaling optimizer's
    `apply` is replaced: an overflow on one rank is then an overflow on all, and all ranks skip the step and halve the
    scale together.
    """
    apply: Update = optimizer.apply
    if not type(optimizer).apply_gradients.__module__.startswith("keras."):
        once(
            f"optimizer {optimizer.name!r} has an apply_gradients of its own, which gets each rank's own gradients. To"
            " change gradients, override `apply` instead: it gets their average over all ranks"
        )

    def update(gradients: Sequence[Any], variables: Any) -> None:
        if shards is None:
            apply(exchange(gradients, largest(variables)), variables)
        else:
            own = variables or model.trainable_variables
            shards.update(shards.pack(gradients, own), own, compiled=False)

    def largest(variables: Any) -> list[int]:
        known = without_loss_scale(optimizer)
        return float8_scales.places(variables or getattr(known, "_trainable_variables", []))

    wrapped = aggregated(update, aggregate, {}, largest) if aggregate > 1 else update

    def reduced(grads: Sequence[Any], trainable_variables: Any = None) -> None:
        check_start(model)
        if hvd.size() > 1 and not kept(model).in_step:
            once(f"the script's own loop trains {model.name}, so ring does not see its loss. {UNSEEN}")
        wrapped(list(grads), trainable_variables)

    optimizer.apply = reduced
    return apply


def compile_step(
    model: Any,
    optimizer: Any,
    apply: Update,
    chooser: Chooser,
    halves: Halves,
    inside: Inside | None = None,
    *,
    reduces: bool,
) -> None:
    """Replace `train_step` by one XLA program if gradients can be exchanged `inside` it, else by two.

    `apply`: the optimizer's own, for the train step; other steps call the method that has replaced it. `halves`: the
    step as two programs. `inside`: exchanges gradients within one program; None: the step runs as two programs, and
    without XLA if it turns out that it cannot be divided. `reduces`: True if ranks exchange gradients. `chooser`:
    decides for each batch whether the programs are compiled, and runs the step.
    """
    halved: set[str] = set()  # relations of the ranks' batch sizes (`Kept.batches`) in steps that cannot be one program
    has_halves = True  # False once a trace shows that the step cannot be divided
    one = partial(taken_whole, model, model.train_step, [(optimizer, apply)], chooser, inside)
    at_once, whole = one(refuses=True), one()
    exchanging_in_apply = in_joined_losses(model, model.train_step, reduces=reduces)

    def step(data: Any, kinds: tuple[str, ...] | None = None, compiled: bool = True) -> Any:
        nonlocal at_once, has_halves
        ours = kept(model).batches
        make_variables(model, lambda: opened(data, kinds))
        if inside and halves.is_compiled and ours not in halved:
            try:
                return at_once(data, kinds, compiled)
            except NotOneUpdate:
                halved.add(ours)
                # the old function cannot be used again, because its first trace was broken off
                at_once = one(refuses=True)
        is_bound = compiled and not inside
        if has_halves or is_bound:
            try:
                return halves.step(data, kinds, compiled, ours)
            except NotOneUpdate:
                has_halves = False
                if is_bound:
                    raise
        return whole(data, kinds, compiled) if inside else exchanging_in_apply(opened(data, kinds))

    replace_train_step(model, step, chooser)
