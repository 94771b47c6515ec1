"""Make a model's ranks act together while they train: count steps, compare weights, sum metrics, and stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from profiles.ground.errors import RingscopeError

from ..alike import weights
from ..elastic.resume import FitPart
from ..exchange import average_logs, from_rank
from ..global_batch import metrics
from ..global_batch.metric_kinds import metrics_tried
from ..internals.frameworks import defining, hvd
from ..internals.seams import unmet
from ..lost import restart
from ..models import check_distributed, kept
from ..ranks.channel import Channel, left
from ..ranks.stopping import OtherRankLeft

CHECKED_STEP = 3  # after this many steps momentum, clipping and nearly all schedules have had an effect on the weights
WHOLE, CUT, OWN = "whole", "cut", "own"
"""The validation data that a rank evaluates: all of it, its part of it, or data that only this rank has."""


class Watch:
    """Wraps a model's train function and the results of its metrics."""

    def __init__(self, model: Any, channel: Channel | None) -> None:
        self._model, self._channel = model, channel
        self.training = self.evaluating = False
        self.evaluated = WHOLE
        self.part: FitPart | None = None  # the part of an elastic `fit` that runs now
        self._steps = 0
        self._logs: Any = None  # logs of the last step
        self._last: tuple[Callable[[Any], Any], Any] | None = None
        self._result = model._get_metrics_result_or_logs
        self.weights: weights.Weights | None = None  # after the last step of an epoch
        self.is_asked = False  # True once Keras's `fit` has read `stop_training` through `_StopTraining`
        self._agreed: bool | None = None  # True if all ranks stop after this epoch; None once the next one has begun

    def lay_over(self) -> None:
        """Count the calls of the model's train function, and join its results over ranks. Keras may make the function
        before or after."""
        model, make = self._model, self._model.make_train_function
        kept(model).watch = self
        _let_ranks_stop_together()

        def make_train_function(force: bool = False) -> Any:
            if model.train_function is None or force:
                check_distributed(model)
                make(force)
                model.train_function = self._counted(model.train_function)
            return model.train_function

        make_train_function.by_ring = self.result.__func__.by_ring = True  # type: ignore[attr-defined]
        model.make_train_function = make_train_function
        model.__dict__["_get_metrics_result_or_logs"] = self.result

    @contextmanager
    def during_fit(self) -> Iterator[None]:
        self.training, self._steps, self._last, self.weights, self._agreed = True, 0, None, None, None
        self.is_asked = False
        try:
            yield
        finally:
            self.training, self._last, self.weights, self._agreed = False, None, None, None

    def stop_after_epoch(self, stops: bool) -> None:
        """Keep what all ranks agreed on: whether they stop after this epoch. A later request, say by a thread or a
        signal, counts in the next epoch."""
        self._agreed = stops

    def is_to_stop(self, asked: bool) -> bool:
        self.is_asked = True
        return asked if self._agreed is None else self._agreed

    @contextmanager
    def during_evaluation(self, evaluated: str) -> Iterator[None]:
        self.evaluating, before, self.evaluated = True, self.evaluated, evaluated
        try:
            is_summed = evaluated != WHOLE
            if is_summed:
                metrics.check_summable(metrics.flat_metrics(self._model))
            with metrics.batches_count_alike(self._model), metrics_tried(self._model) if is_summed else nullcontext():
                yield
        finally:
            self.evaluating, self.evaluated = False, before

    def _counted(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(iterator: Any) -> Any:
            if not self.training:  # the call comes from train_on_batch
                return self._of_joined_batch(function(iterator))
            channel = self._channel
            restart.check()
            if channel is not None:
                if channel.failure is not None:
                    raise OtherRankLeft(left(*channel.failure))
                if not channel.begin_step():
                    self._model.stop_training = True
                    return self._logs
            if not self.is_asked:  # otherwise ranks would not stop together, and would wait for each other
                raise RingscopeError(unmet("keras.Model.stop_training", "stopping `fit` at the same step on all ranks"))
            self._last, self._agreed = (function, iterator), None
            logs = self._logs = function(iterator)
            self._steps += 1
            if self._steps == CHECKED_STEP:
                weights.check_weights(self._model, weights.weights_now(self._model), f"after step {CHECKED_STEP}")
            if channel is not None and channel.last_step is not None and channel.steps_begun >= channel.last_step:
                self._model.stop_training = True
            return logs

        return counted

    def _of_joined_batch(self, logs: Any) -> Any:
        """The logs of `train_on_batch`, joined over ranks. It resets its metrics in each call."""
        if hvd.size() == 1:
            return logs
        return metrics.result_over_ranks(self._model, logs, _averaged)

    def _finish_together(self, logs: Any) -> Any:
        """If only this rank has stopped within an epoch, take the steps that other ranks have begun."""
        channel = self._channel
        if channel is None or not self._model.stop_training or self._last is None:
            return logs
        last, (function, iterator) = channel.agree_on_last_step(), self._last
        while channel.steps_begun < last:
            logs = self._counted(function)(iterator)
            if self.part is not None:
                self.part.batch_ended_unseen()
        self._model.stop_training = True
        return logs

    def result(self, logs: Any) -> Any:
        """The logs of an epoch or an evaluation, joined over ranks: as one process with all the data would report
        them."""
        if self.evaluating:
            if self.evaluated == WHOLE:
                return self._result(logs)
            # Keras reports a number that a test step itself returns from the last batch alone, which the last rank has.
            return metrics.result_over_ranks(self._model, logs, _of_last_rank)
        if not self.training:
            return self._result(logs)
        if not self._steps and hvd.size() == 1 and self.part is None:
            return logs  # Keras warns of data without a batch, and goes on; the metrics may not be built
        logs = self._finish_together(logs)
        if not self._steps and hvd.size() > 1 and self.part is None and not self._model.stop_training:
            raise RingscopeError(
                f"fit took no step: the data ended before each of {hvd.size()} ranks had a batch; use smaller batches, "
                "or start fewer ranks"
            )
        # The digest is launched before the host waits for the last step, so that the device computes it at once.
        self.weights = weights.weights_now(self._model)
        return metrics.result_over_ranks(self._model, logs, _averaged)


class _StopTraining:
    """The property `model.stop_training` as Keras's `fit` reads it: what the ranks have agreed on, else this rank's
    value."""

    def __get__(self, model: Any, owner: Any) -> Any:
        if model is None:
            return self
        watch = kept(model).watch
        asked = model.__dict__.get("stop_training", False)
        return asked if watch is None else watch.is_to_stop(asked)

    def __set__(self, model: Any, value: Any) -> None:  # Keras reads the value first, and sets it only if it changes
        model.__dict__["stop_training"] = value


def _let_ranks_stop_together() -> None:
    trainer = defining("compute_loss")
    if not isinstance(vars(trainer).get("stop_training"), _StopTraining):
        trainer.stop_training = _StopTraining()


def _averaged(logs: dict[str, Any]) -> dict[str, Any]:
    average_logs(logs)
    return logs


def _of_last_rank(logs: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: float(value) for name, value in logs.items() if getattr(value, "shape", ()) == ()}
    last: dict[str, Any] = from_rank(hvd.size() - 1, numbers)
    return logs | last
