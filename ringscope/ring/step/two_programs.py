"""Compile a train step as two XLA programs: the first computes the gradients, the second updates the weights. Ranks sum
the gradients between the two programs or, while the backward pass still runs, inside the first.

Used where one program (one_program.py) cannot sum the gradients: in elastic training, for Adasum, for gradients sent as
bfloat16 or in groups, with a sharded optimizer, and if Horovod's calls for XLA are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from ..feed.carriers import opened
from ..forms import forms, optimizers
from ..global_batch import losses, normalization
from ..global_batch.totals import Share
from ..gradients.aggregate import Update, aggregated
from ..gradients.average import Exchange
from ..gradients.overlap.buckets import Overlap
from ..gradients.overlap.trace_order import Traced
from ..gradients.wire import Outgoing
from ..gradients.zero.sharded import Shards
from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from ..models import ALIKE
from . import after_update
from .choose import Chooser, NotOneUpdate
from .one_program import check_start, joined_losses


class Halves:
    """A step of a model with one optimizer, as two programs. `apply` is the optimizer's original method, because ring
    has already replaced the attribute.

    The first program is the model's own train step, traced with an `apply` that only catches the gradients; the second
    is `apply`. outgoing: the form in which gradients leave the first program. aggregate: number of steps whose
    gradients are exchanged together. reduces: True if ranks exchange gradients. shards: replaces `apply` and `exchange`
    if the optimizer is sharded. overlap: if it accepts the gradients, exchanges them instead of `exchange`, while the
    first program still runs.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        apply: Update,
        exchange: Exchange,
        outgoing: Outgoing,
        chooser: Chooser,
        *,
        aggregate: int,
        reduces: bool,
        shards: Shards | None,
        overlap: Overlap | None,
    ) -> None:
        self._model, self._optimizer, self._apply, self._exchange = model, optimizer, apply, exchange
        self._outgoing, self._chooser, self._reduces = outgoing, chooser, reduces
        self._shards, self._overlap = shards, overlap
        self._train_step = model.train_step
        self._caught: list[tuple[list[Any], list[Any]]] = []
        self._applied_at: after_update.Place = 0  # number of operations traced before `apply`
        self._exchanging: list[bool] = []  # not empty: this step's losses need denominators summed over ranks
        self.is_compiled = not (reduces and normalization.is_synchronised(model))
        """True if XLA can compile the first program, which it cannot if ranks exchange inside the forward pass."""
        self._forget()
        chooser.traced.append(self._forget)
        self._aggregate = aggregate
        self._collected: dict[Any, Any] = {}  # sums of several steps' gradients, if they are exchanged together

    def step(self, data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str) -> Any:
        """Run one step and return its logs. ours: how the sizes of the ranks' batches compare (`Kept.batches`). Raises
        NotOneUpdate for a step that cannot be divided."""
        totals = self._totals(data, kinds, compiled, ours)
        logs, gradients = self._programs[compiled](data, kinds, compiled, ours, totals)
        update: Update = partial(self._exchanged, compiled=compiled)
        if self._aggregate > 1:
            update = aggregated(update, self._aggregate, self._collected, lambda _: self._outgoing.largest)
        update(gradients, self._caught[0][1])
        return logs

    def _forget(self) -> None:
        """Discard the traced programs, because a function whose first trace was broken off cannot be used again."""
        # Each shape has a graph of its own, because a common graph would hide the shapes from the layers' forms.
        self._programs = {
            compiled: tf.function(self.forward_backward, autograph=False, jit_compile=compiled and self.is_compiled)
            for compiled in (True, False)
        }
        self._updated_by_xla = tf.function(self.update, autograph=False, jit_compile=True)

    # XLA names the programs after these two methods.
    def forward_backward(
        self, data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str, totals: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """The first program. Returns the logs, and the gradients in the form in which they travel."""
        share = losses.given(totals) if self._exchanging else self._needed
        logs = self._traced(data, kinds, compiled, ours, share)
        if compiled and self.is_compiled:
            self._chooser.check(tf.compat.v1.get_default_graph())
        if len(self._caught) != 1:
            raise NotOneUpdate(
                f"the train step applies gradients {len(self._caught)} times, and a compiled step must do so exactly "
                "once"
            )
        found, variables = self._caught[0]
        if (used := after_update.used_since(self._applied_at, variables)) is not None:
            raise NotOneUpdate(
                f"the train step uses {used} after it has applied gradients; a compiled step must use this variable "
                "before"
            )
        typed = self._outgoing.typed(found, variables, alike=ours == ALIKE)
        if self._shards is not None:
            return logs, self._shards.pack(typed, variables)
        gradients = self._outgoing.pack(typed)
        if compiled and (beside := self._beside(gradients)) is not None:
            gradients = beside.inside(gradients, Traced(self._applied_at))
        return logs, gradients

    def update(self, sums: Sequence[Any]) -> None:
        """The second program: the optimizer's update."""
        variables = self._caught[0][1]
        with optimizers.short(self._optimizer):
            self._apply(self._outgoing.unpack(sums, variables), variables)

    def _exchanged(self, gradients: Sequence[Any], variables: Any, *, compiled: bool) -> None:
        """Exchange the gradients and run the second program."""
        if self._shards is not None:
            self._shards.update(gradients, variables, compiled=compiled)
            return
        beside = self._beside(gradients)
        if beside is None:
            gradients = self._exchange(gradients, self._outgoing.largest)
        elif not compiled:
            gradients = beside.between(gradients)
        # XLA updates the weights on all ranks, compiled or not, because it rounds differently and other ranks may have
        # compiled this step.
        (self._updated_by_xla if compiled or self._chooser.has_compiled else self.update)(gradients)

    def _beside(self, gradients: Sequence[Any]) -> Overlap | None:
        if self._overlap is None or not self.is_compiled or tf.executing_eagerly():
            return None
        return self._overlap if self._overlap.takes(gradients, self._outgoing.largest) else None

    def _traced(self, data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str, share: Share) -> Any:
        """Run the model's step up to the gradients, which end in `_caught`; returns its logs."""
        self._caught.clear()
        by_forms = forms(self._model) if compiled and self.is_compiled else nullcontext()
        caught = laid_over(self._optimizer, apply=self._catch)
        batch = opened(data, kinds)
        with caught, by_forms, joined_losses(self._model, self._reduces, share, ours, self._train_step, batch):
            return self._train_step(batch)

    def _catch(self, gradients: Any, trainable_variables: Any = None) -> None:
        check_start(self._model)
        self._caught.append((list(gradients), list(trainable_variables or self._model.trainable_variables)))
        self._applied_at = after_update.place()

    def _needed(self, own: Any) -> Any:
        self._exchanging.append(True)
        raise losses.NeedsExchange

    def _totals(self, data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str) -> list[Any]:
        """The denominators of this step, summed over ranks. All ranks exchange them alike, whether they compile the
        step or not."""
        if not self._exchanging:
            try:
                self._programs[compiled].get_concrete_function(data, kinds, compiled, ours, [])
                return []
            except Exception:
                if not self._exchanging:
                    raise
                self._forget()
        return _denominators(self._model, lambda share: self._traced(data, kinds, False, ours, share))


def _denominators(model: Any, trace: Callable[[Share], Any]) -> list[Any]:
    """The denominators of a step, summed over ranks. They come from a forward pass that computes nothing else: its
    assignments are discarded, and operations that no denominator needs are pruned."""
    from keras import StatelessScope

    found: list[Any] = []
    # the scope: in it Keras's regularisers look up each weight
    with StatelessScope(state_mapping=[(v, v.value) for v in model.trainable_variables], collect_losses=True):
        trace(losses.collected(found))
    return found
