"""Losses as one rank would take them on the joined batch: each sum over a batch divided by everybody's denominator.

The gradients of the ranks are averaged. That is right as it stands only for a loss that is a mean over a batch of the
same size on every rank. So while a train step is traced, the losses of `compile` are

    a mean    sum of this rank's values * ranks / everybody's denominator   (elements, unmasked ones, or weights)
    a sum     sum of this rank's values * ranks

whose mean over ranks is the loss on the joined batch. What has been reduced already, by a loss function of the user's
own, `add_loss` or a regulariser, is tried for what it is to its samples (separable.py): a mean counts by the batch's
size, a sum as a sum, and what is neither cannot be had by averaging gradients, which is said; what does not depend on
the batch comes out as it is. The denominators are exchanged only where they can differ: masks, means by weight, batches
of unlike sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from profiles.errors import RingscopeError

from ..exchange import hvd, name_in_graph, on_host, outside_scopes, summed_as, tf
from . import metrics, own_loss
from .separable import SUM, kind_of, kinds_of_added
from .summable import metrics_tried

__all__ = ["NeedsExchange", "Share", "collected", "given", "joined", "one", "shared_inline"]

Share = Callable[[Any], Any]
"""This rank's denominator -> everybody's."""


class NeedsExchange(Exception):
    """A denominator that ranks must exchange was met where nothing can be exchanged."""


def collected(found: list[Any]) -> Share:
    """Keeps the denominators of a step, in the order in which they are met."""

    def share(own: Any) -> Any:
        found.append(own)
        return own

    return share


def given(totals: Sequence[Any]) -> Share:
    """Hands out everybody's denominators in that order."""
    waiting = list(totals)

    def share(own: Any) -> Any:
        if not waiting:
            raise RingscopeError("the losses of a step are not those of the step before; take step='fit'")
        return waiting.pop(0)

    return share


def shared_inline(own: Any, name: str | None = None) -> Any:
    # Shapes are known on the host, and so few bytes are not worth a launch of NCCL.
    with outside_scopes(), on_host():
        everybodys = tf.cast(own, summed_as(own.dtype)) * tf.cast(one(), summed_as(own.dtype))
        total = hvd.allreduce(everybodys, op=hvd.Sum, name=name or name_in_graph("denominator"))
        return tf.cast(total, own.dtype)


@cache
def one() -> Any:
    """A variable that is 1. A batch of a fixed shape has a constant denominator, and TensorFlow takes an all-reduce of
    a constant for a constant too: it would exchange it once, while it optimises the graph, and no more. A rank that met
    a batch of another shape alone then waited for ever for ranks which had theirs already."""
    with tf.init_scope():
        return tf.Variable(1.0, trainable=False, name="one")


@contextmanager
def joined(model: Any, ranks: int, share: Share, *, uneven: bool) -> Iterator[None]:
    """While it lasts, a train step of the model is traced with the losses of the joined batch.

    uneven: the ranks' batches may be of unlike sizes.
    """
    with metrics.batches_count_alike(model):
        if ranks == 1:
            yield
            return
        batch = _Batch(ranks, share) if uneven else None
        met: list[bool] = []  # not empty: a loss was taken by a method of Keras
        taken = _compiled_losses(model, ranks, share, batch, met)
        with taken, _reduced_already(model, ranks, batch, met), _tracked(model, batch), metrics_tried(model):
            yield
        if not met:
            own_loss.of_train_step(model)


class _Batch:
    """This rank's batch among all ranks' of the same step, where their sizes may differ."""

    def __init__(self, ranks: int, share: Share) -> None:
        self._ranks, self._share = ranks, share
        self._total: Any = None
        self.size: Any = None

    def measure(self, *data: Any) -> None:
        """Keep the size of the first of `data` that has one."""
        for leaf in tf.nest.flatten(data):
            shape = getattr(leaf, "shape", None)
            if shape is not None and len(shape):
                self.size = tf.cast(
                    leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf)[0], tf.float32
                )
                return

    def mean_size(self) -> Any:
        if self._total is None:
            self._total = self._share(self.size)
        return self._total / self._ranks

    def by_size(self, mean: Any) -> Any:
        """A mean over this batch -> what the mean over ranks must be taken of."""
        if self.size is None:
            return mean
        return mean * tf.cast(tf.math.divide_no_nan(self.size, self.mean_size()), mean.dtype)


@contextmanager
def _reduced_already(model: Any, ranks: int, batch: _Batch | None, met: list[bool]) -> Iterator[None]:
    """What layers add to the loss, and what a `compute_loss` of the model's own takes: a sum as a sum, the rest by the
    size of the batch."""
    compute_loss, aggregate = model.compute_loss, model._aggregate_additional_loss
    kinds: list[str | None] = []  # of those that are still to come

    def measured(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(("x", "y", "y_pred"), args, strict=False)) | kwargs
        if batch is not None:
            batch.measure(given.get("y_pred"), given.get("x"))
        kinds[:] = kinds_of_added(model, given.get("x"))
        met.append(True)
        if not own_loss.is_own(compute_loss):
            return compute_loss(*args, **kwargs)
        kind = own_loss.kind_of(model, compute_loss, args, kwargs)
        return own_loss.scaled(compute_loss(*args, **kwargs), kind, ranks, by_size)

    def aggregated(loss: Any) -> Any:
        total = aggregate(loss)
        return total * ranks if kinds and kinds.pop(0) == SUM else by_size(total)

    def by_size(mean: Any) -> Any:
        return mean if batch is None else batch.by_size(mean)

    model.__dict__["compute_loss"] = measured
    model.__dict__["_aggregate_additional_loss"] = aggregated
    try:
        yield
    finally:
        del model.__dict__["compute_loss"], model.__dict__["_aggregate_additional_loss"]


@contextmanager
def _compiled_losses(model: Any, ranks: int, share: Share, batch: _Batch | None, met: list[bool]) -> Iterator[None]:
    from keras.src.losses import loss as keras_losses

    compiled = model._compile_loss
    if compiled is None:
        yield
        return
    own, reduce, take = compiled.call, keras_losses.reduce_weighted_values, keras_losses.Loss.__call__
    taken: list[tuple[Any, Any, Any]] = []  # the losses being taken, and of what: one of the user's own may call others

    def reduced(values: Any, sample_weight: Any = None, mask: Any = None, reduction: Any = "mean", dtype: Any = None):  # type: ignore[no-untyped-def]
        if len(taken) > 1:
            return reduce(values, sample_weight, mask, reduction, dtype)
        kind = kind_of(*taken[-1], by_itself=len(values.shape) == 0) if taken else None
        return _reduced(reduce, values, sample_weight, mask, reduction, dtype, ranks, share, batch, kind)

    def taking(loss: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        taken.append((loss, y_true, y_pred))
        try:
            return take(loss, y_true, y_pred, *args, **kwargs)
        finally:
            taken.pop()

    def call(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        met.append(True)
        if batch is not None and batch.size is None:
            batch.measure(y_pred)
        keras_losses.reduce_weighted_values, keras_losses.Loss.__call__ = reduced, taking
        try:
            total = own(y_true, y_pred, *args, **kwargs)
            return own_loss.of_each_sample(total, ranks) if len(total.shape) else total
        finally:
            keras_losses.reduce_weighted_values, keras_losses.Loss.__call__ = reduce, take

    compiled.__dict__["call"] = call
    try:
        yield
    finally:
        compiled.__dict__.pop("call", None)


def _reduced(
    reduce: Callable[..., Any],
    values: Any,
    sample_weight: Any,
    mask: Any,
    reduction: str | None,
    dtype: Any,
    ranks: int,
    share: Share,
    batch: _Batch | None,
    kind: str | None,
) -> Any:
    if len(values.shape) == 0:  # a function of the user's own that has reduced already
        number = tf.convert_to_tensor(values) if dtype is None else tf.cast(values, dtype)
        if kind == SUM:
            number *= ranks
        elif batch is not None:
            number = batch.by_size(number)
        return number * _mean_weight(sample_weight, mask, reduction, number.dtype, share)
    if reduction == "sum":
        return reduce(values, sample_weight, mask, reduction, dtype) * ranks
    if reduction in (None, "none"):
        return reduce(values, sample_weight, mask, reduction, dtype)
    by_weight = reduction == "mean_with_sample_weight"
    differs = batch is not None or mask is not None or (by_weight and sample_weight is not None)
    if not differs:
        return reduce(values, sample_weight, mask, reduction, dtype)
    total = reduce(values, sample_weight, mask, "sum", dtype)
    if by_weight and (sample_weight is not None or mask is not None):
        own = _sum_of_weights(sample_weight, mask, total.dtype)
    else:
        own = _elements(values, total.dtype)
        if mask is not None:
            own *= tf.reduce_mean(tf.cast(mask, total.dtype))
    # Everybody's is 0 where no rank has an unmasked element.
    return tf.math.divide_no_nan(total * ranks, share(own))


def _mean_weight(sample_weight: Any, mask: Any, reduction: str | None, dtype: Any, share: Share) -> Any:
    """By which Keras multiplies a loss that is one number for the batch: the mean of the samples' weights among what is
    not masked, or their sum; everybody's."""
    if (sample_weight is None and mask is None) or reduction == "mean_with_sample_weight":
        return tf.cast(1, dtype)
    weights = _sum_of_weights(sample_weight, mask, dtype)
    if reduction == "sum":
        return share(weights)
    counted = _elements(mask if sample_weight is None else sample_weight, dtype)
    if mask is not None:
        counted *= tf.reduce_mean(tf.cast(mask, dtype))
    return tf.math.divide_no_nan(share(weights), share(counted))


def _elements(values: Any, dtype: Any) -> Any:
    return tf.cast(tf.size(tf.convert_to_tensor(values)), dtype)


def _sum_of_weights(sample_weight: Any, mask: Any, dtype: Any) -> Any:
    """As Keras sums them: of weights and mask together, in their own shape."""
    from keras.src.losses import loss as keras_losses

    weights = keras_losses.apply_mask(
        None if sample_weight is None else tf.cast(sample_weight, dtype),
        mask,
        dtype=dtype,
        reduction="mean_with_sample_weight",
    )
    return tf.reduce_sum(tf.cast(weights, dtype))


@contextmanager
def _tracked(model: Any, batch: _Batch | None) -> Iterator[None]:
    """The reported loss is a mean over batches by their sizes. Where those differ between ranks, each rank counts its
    part of the joined loss with their mean size, so that the sum over ranks counts the joined loss with its own. One
    loss a sample is no part of a joined one, and counts with the rank's own."""
    tracker = model._loss_tracker
    if batch is None or tracker is None:
        yield
        return
    own = tracker.update_state

    def update_state(value: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None:
            return own(value)
        batch.size = tf.cast(sample_weight, tf.float32)
        return own(value, sample_weight=sample_weight if len(value.shape) else batch.mean_size())

    tracker.__dict__["update_state"] = update_state
    try:
        yield
    finally:
        tracker.__dict__.pop("update_state", None)
