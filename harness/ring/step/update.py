"""The kinds of step: gradients averaged in the optimizer's `apply`, inside of one program of XLA, or between two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from .. import batches
from ..exchange import tf
from ..feed import opened
from ..forms import forms, updates
from ..joined import losses, normalization
from . import after_update, overwritten
from .aggregated import Update, aggregated
from .choose import Chooser, NotOneUpdate, check_draws
from .inside import Inside
from .outgoing import Outgoing
from .overlap import Overlap
from .sharded import Shards
from .traced import Traced
from .variables import make_variables
from .whole import check_start, in_joined_losses, joined_losses, taken_whole

Exchange = Callable[[Sequence[Any], Sequence[int]], list[Any]]
"""(gradients of this rank, where among them those are of which the largest of all ranks counts) -> what all apply."""


def reduce_in_apply(
    model: Any, optimizer: Any, exchange: Exchange, aggregate: int, shards: Shards | None = None
) -> Update:
    """Shadow the optimizer's `apply`; returns what it was.

    shards: how gradients are exchanged and applied in the place of both, where the optimizer is sharded.

    With float16 that is the loss-scaling optimizer's: an overflow on one rank is then an overflow on all, and all of
    them skip the step and halve the scale together.
    """
    apply: Update = optimizer.apply

    def update(gradients: Sequence[Any], variables: Any) -> None:
        if shards is None:
            apply(exchange(gradients, largest(variables)), variables)
        else:
            own = variables or model.trainable_variables
            shards.update(shards.pack(gradients, own), own, compiled=False)

    def largest(variables: Any) -> list[int]:
        known = getattr(optimizer, "inner_optimizer", optimizer)
        return overwritten.places(variables or getattr(known, "_trainable_variables", []))

    wrapped = aggregated(update, aggregate, {}, largest) if aggregate > 1 else update

    def reduced(grads: Sequence[Any], trainable_variables: Any = None) -> None:
        check_start(model)
        wrapped(list(grads), trainable_variables)

    optimizer.apply = reduced
    return apply


def compile_step(
    model: Any,
    optimizer: Any,
    apply: Update,
    exchange: Exchange,
    aggregate: int,
    outgoing: Outgoing,
    *,
    reduces: bool,
    chooser: Chooser,
    shards: Shards | None = None,
    overlap: Overlap | None = None,
    inside: Inside | None = None,
) -> None:
    """Replace `train_step` by one XLA program where gradients can be exchanged `inside` of it, else by two with the
    exchange between them, or within the first.

    The first is the model's own train step, traced with an `apply` that only catches the gradients; the second `apply`.
    `apply`: the optimizer's own; the one that stands in its place serves steps other than the model's train step.
    `outgoing`: what gradients go from the one program to the other as.
    `shards`: in the place of `apply` and `exchange` where the optimizer is sharded.
    `overlap`: in the place of `exchange` for gradients that it takes, while the first program still runs.
    `inside`: how gradients are exchanged in the middle of one program; None: a step is taken in halves, and what turns
    out to have none as without XLA.
    `chooser`: says for each batch whether they are compiled; it runs the step, and the exchange is the same either way.
    """
    train_step, reduced = model.train_step, optimizer.apply
    caught: list[tuple[list[Any], list[Any]]] = []
    applied_at: after_update.Place = 0  # where in the trace
    exchanging: list[bool] = []  # not empty: this step's losses need denominators of all ranks
    halved: set[str] = set()  # what the ranks' batches are to each other (`batches`) where one program cannot do it
    unhalved: list[bool] = []  # not empty: a traced step has no halves, and is taken whole

    def catch(grads: Any, trainable_variables: Any = None) -> None:
        nonlocal applied_at
        check_start(model)
        caught.append((list(grads), list(trainable_variables or model.trainable_variables)))
        applied_at = after_update.place()

    def traced(data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str, share: losses.Share) -> Any:
        """The model's step up to the gradients, which end in `caught`."""
        caught.clear()
        optimizer.apply = catch
        try:
            with joined_losses(model, reduces, share, ours), forms(model) if compiled and compiles else nullcontext():
                return train_step(opened(data, kinds))
        finally:
            optimizer.apply = reduced

    def forward_backward(
        data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str, totals: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        logs = traced(data, kinds, compiled, ours, losses.given(totals) if exchanging else needed)
        if compiled and compiles:
            check_draws(tf.compat.v1.get_default_graph())
        if len(caught) != 1:
            raise NotOneUpdate(f"the train step applies gradients {len(caught)} times, a compiled one exactly once")
        if (used := after_update.used_since(applied_at, caught[0][1])) is not None:
            raise NotOneUpdate(f"the train step uses {used} after it has applied gradients, a compiled one before")
        gradients = outgoing.typed(*caught[0], alike=ours == batches.ALIKE)
        if shards is not None:
            return logs, shards.pack(gradients, caught[0][1])
        gradients = outgoing.pack(gradients)
        if compiled and (beside := overlap_of(gradients)) is not None:
            gradients = beside.inside(gradients, Traced(applied_at))
        return logs, gradients

    def needed(own: Any) -> Any:
        exchanging.append(True)
        raise losses.NeedsExchange

    # A graph for each shape: one for all would hide from the layers' forms what it is. XLA cannot compile what ranks
    # exchange inside the forward pass.
    compiles = not (reduces and normalization.is_synchronised(model))

    def program(compiled: bool) -> Any:
        return tf.function(forward_backward, autograph=False, jit_compile=compiled and compiles)

    programs = {compiled: program(compiled) for compiled in (True, False)}

    def overlap_of(gradients: Sequence[Any]) -> Overlap | None:
        if overlap is None or not compiles or tf.executing_eagerly() or not overlap.takes(gradients, outgoing.largest):
            return None
        return overlap

    def totals_of(data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str) -> list[Any]:
        """Everybody's denominators of this step, exchanged alike whether it is compiled or not."""
        if not exchanging:
            try:
                programs[compiled].get_concrete_function(data, kinds, compiled, ours, [])
                return []
            except Exception:
                if not exchanging:
                    raise
                # A function whose first trace ended halfway is of no more use.
                programs.update({compiled: program(compiled) for compiled in (True, False)})
        return _totals(model, lambda share: traced(data, kinds, False, ours, share))

    def unpacked(packed: Sequence[Any]) -> None:
        variables = caught[0][1]
        with updates.short(optimizer):
            apply(outgoing.unpack(packed, variables), variables)

    one = partial(taken_whole, model, train_step, [(optimizer, apply)], chooser, inside)
    at_once, exchanging_inside = [one(refuses=True)], one()
    exchanging_in_apply = in_joined_losses(model, train_step, reduces=reduces)

    def whole(data: Any, kinds: tuple[str, ...] | None, compiled: bool) -> Any:
        return exchanging_inside(data, kinds, compiled) if inside else exchanging_in_apply(opened(data, kinds))

    compiled_update = tf.function(unpacked, autograph=False, jit_compile=True)

    def step(data: Any, kinds: tuple[str, ...] | None = None, compiled: bool = True) -> Any:
        ours = batches.told(model)
        make_variables(model, lambda: opened(data, kinds))
        if inside and compiles and ours not in halved:
            try:
                return at_once[0](data, kinds, compiled)
            except NotOneUpdate:
                halved.add(ours)
                at_once[0] = one(refuses=True)  # a function whose first trace ended halfway is of no more use
        if unhalved and (inside or not compiled):
            return whole(data, kinds, compiled)
        try:
            totals = totals_of(data, kinds, compiled, ours)
            logs, gradients = programs[compiled](data, kinds, compiled, ours, totals)
        except NotOneUpdate:
            unhalved.append(True)
            if compiled and not inside:
                raise
            return whole(data, kinds, compiled)

        def update(grads: Sequence[Any], variables: Any) -> None:
            if shards is not None:
                shards.update(grads, variables, compiled=compiled)
                return
            beside = overlap_of(grads)
            if beside is None:
                grads = exchange(grads, outgoing.largest)
            elif not compiled:
                grads = beside.between(grads)
            # Other ranks may have compiled this step: XLA, which rounds otherwise, updates the weights on all.
            (compiled_update if compiled or chooser.has_compiled else unpacked)(grads)

        summed = aggregated(update, aggregate, state, lambda _: outgoing.largest) if aggregate > 1 else update
        summed(gradients, caught[0][1])
        return logs

    state: dict[str, Any] = {}
    step.by_ring = step.takes_carriers = True  # type: ignore[attr-defined]
    step.chooser = chooser  # type: ignore[attr-defined]
    model.train_step = step


def _totals(model: Any, trace: Callable[[losses.Share], Any]) -> list[Any]:
    """Everybody's denominators of a step, found by a forward pass of which nothing else is computed: what it assigns is
    kept apart, and what no denominator comes from is pruned."""
    from keras import StatelessScope

    own: list[Any] = []
    # Keras's regularisers look up each weight in the scope itself.
    with StatelessScope(state_mapping=[(v, v.value) for v in model.trainable_variables], collect_losses=True):
        trace(losses.collected(own))
    if not own:
        return []
    together = losses.shared_inline(tf.stack([tf.cast(each, tf.float32) for each in own]), name="denominators")
    return [tf.cast(total, each.dtype) for total, each in zip(tf.unstack(together, len(own)), own, strict=True)]
