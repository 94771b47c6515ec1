"""The training loop: how steps follow each other, in `model.fit` and in the harness alike.

After `ring.distribute(model)`, `model.fit` is Keras's own, with its epochs, validation, callbacks and history; only the
function that it calls for each batch is here. Keras's own function asks the device after each step whether there was a
batch, and so waits for the device. Ring's function knows the end of the data on the host; batches are staged ahead
(feed), and no value is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from .. import marks
from ..data import ids
from ..exchange import reduced_on_host
from ..feed.carriers import AS_IT_IS, CARRIERS, Carried, data_of, leaves_of, opened
from ..feed.feeds import Feed, feed
from ..forms import masks
from ..global_batch import trial
from ..internals.frameworks import hvd, tf
from ..models import UNEVEN, kept
from ..say import once
from ..step.choose import left_to_xla
from ..step.retrace import traced_without_those_that_raise
from ..step.variables import make_variables, trains_as_keras
from .by_graph import ByGraph

RANK_MARK_EVERY = 10  # steps between two marks of the rank, so that any recording soon shows its rank
SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


class Turns:
    """Takes steps one after the other, and marks each in a recording."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        self.number = 0  # number of the next step
        self.loader = ""  # name of the pipeline that makes the batches

    def turn(self, batches: Feed, *spec: Any) -> tuple[Any, int]:
        """One step on the feed's next batch: (its logs, the ns that it waited for the batch)."""
        marks.mark_pause()
        if self.number % RANK_MARK_EVERY == 0:
            marks.mark_rank(hvd.rank(), hvd.size())
            if self.loader:
                marks.mark_loader(self.loader)
        with marks.step(self.number):
            batches.wait_for_room()
            waited_from_ns = time.perf_counter_ns()
            with marks.wait_input():
                batch = next(batches)
            waited_ns = time.perf_counter_ns() - waited_from_ns
            logs = self._step(batch, *spec)
        self.number += 1
        return logs, waited_ns


class WhileAllHave:
    """A feed that ends on all ranks when it ends on one, since the other ranks would wait for that rank's next step."""

    def __init__(self, own: Feed) -> None:
        self._own, self._batches = own, 0
        self.wait_for_room, self.close = own.wait_for_room, own.close

    def __next__(self) -> Any:
        batch = next(self._own, None)
        has = float(batch is not None)
        all_have, none_has = reduced_on_host([has, 1 - has], hvd.Min, "another_batch")
        if not all_have:
            if not none_has:
                once(
                    f"the data of one rank ends after batch {self._batches}, and other ranks have more: all ranks "
                    "end the epoch there and skip the rest"
                )
            raise StopIteration
        self._batches += 1
        return batch


class Loop(Turns):
    """The training or test steps of a model, in order. step_of: gives `model.train_step` or `model.test_step`;
    called when a step is traced."""

    def __init__(self, model: Any, step_of: Callable[[], Callable[..., Any]]) -> None:
        super().__init__(self.step)
        self._model, self._step_of = model, step_of
        self._functions: dict[Hashable, Callable[..., Any]] = {}
        self._feed: tuple[Any, Feed] | None = None

    def function(self, iterator: Any) -> Any:
        """Replaces Keras's train function: takes `steps_per_execution` steps on the iterator's next batches, and
        returns the logs of the last step. Raises StopIteration if no batch is left."""
        logs = None
        if isinstance(iterator, tf.data.Iterator):
            batches = self._feed_for(iterator)
            for _ in range(self._steps_per_execution()):
                try:
                    logs = self.turn(batches, iterator.element_spec)[0]
                except StopIteration:
                    self.close()
                    if logs is None:
                        raise
                    break
        else:  # arrays, from `train_on_batch`: this rank does not know the size of other ranks' batches
            kept(self._model).batches = UNEVEN
            self._expect_another_structure()
            for _, data in zip(range(self._steps_per_execution()), iterator, strict=False):
                logs = self.step(data)
        return logs

    def step(self, batch: Any, spec: Any = None) -> Any:
        """Take one step on this batch, and return its logs. spec: the element spec of its iterator, so that one graph
        serves batches of all its shapes."""
        kinds, shapes = (batch.kinds, batch.shapes) if isinstance(batch, Carried) else (None, None)
        chooser = getattr(self._step_of(), "chooser", None)
        ours = kept(self._model).batches
        if chooser is not None:

            def take(compiled: bool) -> Any:
                key = kinds, compiled, ours
                known = key in self._functions
                if not known:
                    make_variables(self._model, lambda: opened(data_of(batch), kinds))
                    self._functions[key] = self._by_choice(kinds, compiled)
                taken = partial(self._functions[key], batch)
                with left_to_xla() if compiled else nullcontext(), nullcontext() if known else _tried_by(batch, kinds):
                    return chooser.head.priced(taken, data_of(batch)) if compiled and known else taken()

            forget = partial(self._functions.pop, (kinds, True, ours), None)
            return chooser.run(take, leaves_of(batch), shapes, anew=forget)
        signature = None if spec is None else _signature(spec, kinds)
        # The spec's text is the key, since some specs hold values that cannot be hashed.
        key = kinds, str(signature), self._model.run_eagerly, ours
        if key in self._functions:
            return self._functions[key](batch)

        def first() -> Any:
            self._functions[key] = self._whole(kinds, signature)
            with _tried_by(batch, kinds):
                return self._functions[key](batch)

        dense = all(isinstance(leaf, tf.Tensor) for leaf in leaves_of(batch))
        if dense and not self._model.run_eagerly and trains_as_keras(self._model):
            make_variables(self._model, lambda: opened(data_of(batch), kinds))
        return traced_without_those_that_raise(first, lambda: None)

    def _whole(self, kinds: tuple[str, ...] | None, signature: Any) -> Callable[..., Any]:
        def one_step(data: Any) -> Any:
            with masks.unspread():
                return self._step_of()(opened(data, kinds))

        if self._model.run_eagerly:
            return lambda batch: one_step(data_of(batch))
        if signature is None:
            return ByGraph(tf.function(one_step, autograph=False, reduce_retracing=True))
        return ByGraph(tf.function(one_step, autograph=False, input_signature=[signature]))

    def _by_choice(self, kinds: tuple[str, ...] | None, compiled: bool) -> Callable[..., Any]:
        def one_step(data: Any) -> Any:
            step: Any = self._step_of()
            split = step.chooser.head.before(data, kinds) if compiled else nullcontext((data, kinds))
            with masks.unspread(), split as (batch, its_kinds):
                return step(batch, its_kinds, compiled)

        # In a compiled step each shape gets its own graph and program, because a common graph would hide the shape from
        # XLA.
        return ByGraph(tf.function(one_step, autograph=False, reduce_retracing=not compiled))

    def _steps_per_execution(self) -> int:
        return int(self._model.steps_per_execution)

    def _feed_for(self, iterator: Any) -> Feed:
        if self._feed is None or self._feed[0] is not iterator:
            self.close()
            self._expect_another_structure()
            own = feed(iterator, first=self.number, ids=ids.of_model(self._model, iterator.element_spec))
            self._feed = iterator, WhileAllHave(own) if kept(self._model).ends_unknown else own
        return self._feed[1]

    def _expect_another_structure(self) -> None:
        for function in self._functions.values():
            if isinstance(function, ByGraph):
                function.anew()

    def close(self) -> None:
        """Close the current iterator's feed."""
        if self._feed is not None:
            self._feed[1].close()
            self._feed = None

    def variables(self) -> list[Any]:
        """The variables in the graphs of the steps traced so far, one graph for each kind of batch."""
        found = [each for function in self._functions.values() for each in getattr(function, "variables", ())]
        return list({id(each): each for each in found}.values())

    def forget(self) -> None:
        """Forget the traced steps, the compiled ones too, because the model was compiled again."""
        self._functions.clear()
        chooser = getattr(self._step_of(), "chooser", None)
        if chooser is not None:
            chooser.forget()


def _tried_by(batch: Any, kinds: tuple[str, ...] | None) -> AbstractContextManager[None]:
    """Within this context, losses are tried on this batch while a step is traced."""
    return trial.at_hand(lambda: opened(data_of(batch), kinds))


def _signature(spec: Any, kinds: tuple[str, ...] | None) -> Any | None:
    """The element spec of the batches that a feed makes from batches of this spec; None if it cannot be a function's
    signature."""
    leaves = tf.nest.flatten(spec)
    if not all(isinstance(leaf, SPECS) for leaf in leaves) or (kinds is not None and len(kinds) != len(leaves)):
        return None
    if kinds is not None:
        leaves = [
            leaf if kind == AS_IT_IS else tf.TensorSpec(leaf.shape, CARRIERS[leaf.dtype])
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]
    return tf.nest.pack_sequence_as(spec, leaves)


def lay_over(model: Any) -> None:
    """Make the model's `fit` and `train_on_batch` take their steps by a `Loop`."""
    loop = Loop(model, lambda: model.train_step)

    def make_train_function(force: bool = False) -> Callable[[Iterator[Any]], Any]:
        if model.train_function is None or force:
            loop.forget()
            model.train_function = loop.function
        function: Callable[[Iterator[Any]], Any] = model.train_function
        return function

    make_train_function.by_ring = True  # type: ignore[attr-defined]
    model.make_train_function = make_train_function
    kept(model).loop = loop
