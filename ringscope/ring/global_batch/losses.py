"""Losses on the joined batch: each rank divides its sums by the denominator of all ranks together.

The ranks' gradients are averaged. That gives the joined batch's gradient only if the loss is a mean over a batch of the
same size on every rank. So while a train step is traced, each loss of `compile` becomes

    a mean    sum of this rank's values * ranks / denominator of all ranks   (elements, unmasked elements, or weights)
    a sum     sum of this rank's values * ranks

and the mean of these over ranks is the loss on the joined batch. A loss that is already one number (of a user's own
loss function, `add_loss`, a regulariser) is tried on made-up rows (loss_kinds.py): a mean is weighted by the batch's
size, a sum is multiplied by the number of ranks. For any other kind averaged gradients cannot be right, and a line says
so. A number that does not depend on the batch stays as it is. Denominators are exchanged only where they can differ:
with masks, with weighted means, and with batches of different sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf
from ..internals.laid_over import STAYS, laid_over
from ..internals.seams import unmet
from ..say import once
from . import added_losses, metrics, train_step_losses
from . import compute_loss as own_loss
from .batch import Batch
from .loss_kinds import JOINED, SOME, SUM, UNSEEN, Kinds, apart_of, kind_of, kinds_of_added, name_of
from .metric_kinds import metrics_tried
from .ratios import Apart, of_all_ranks
from .reductions import uncounted
from .totals import Share, shared_inline, sharing
from .train_step_losses import OfStep

REDUCTION = "keras.src.losses.loss.reduce_weighted_values"


class NeedsExchange(Exception):
    """A denominator must be exchanged between ranks, but nothing can be exchanged here."""


def collected(found: list[Any]) -> Share:
    """A Share that exchanges each denominator of a step, and appends its sum over ranks to `found`."""

    def share(own: Any) -> Any:
        found.append(shared_inline(own))
        return found[-1]

    return share


def given(totals: Sequence[Any]) -> Share:
    """A Share that hands out the sums that `collected` has kept, in the same order."""
    waiting = list(totals)

    def share(own: Any) -> Any:
        if not waiting:
            raise RingscopeError("the model computes other losses in this step than in the last one; use step='fit'")
        return waiting.pop(0)

    return share


@contextmanager
def joined(
    model: Any, ranks: int, share: Share, train_step: Callable[[Any], Any], data: Any, *, uneven: bool
) -> Iterator[None]:
    """Within this context, this train step of the model is traced with the losses of the joined batch. data: the
    step's argument. uneven: the ranks' batches may differ in size."""
    with metrics.batches_count_alike(model):
        if ranks == 1:
            yield
            return
        batch = Batch(ranks, share) if uneven else None
        met: list[bool] = []  # `met` gets an entry when a method of Keras computes a loss
        taken = _compiled_losses(model, ranks, share, batch, met)
        by_itself = train_step_losses.is_own(train_step)
        # Reading a step calls it: in eager mode it would run once more.
        is_read = by_itself and not tf.executing_eagerly()
        of_step = train_step_losses.of_step(model, train_step, data, uneven=uneven) if is_read else OfStep()
        name = f"{type(model).__name__}.train_step"
        kinds: Kinds = {}
        reduced = _reduced_already(model, ranks, share, batch, met, kinds)
        layers = added_losses.of_all_layers(model, share, ranks, kinds, uneven=uneven)
        by_step = of_all_ranks(of_step.apart, share, ranks, uneven=uneven, name=name)
        with taken, reduced, _tracked(model, batch), metrics_tried(model), layers, sharing(share), by_step:
            yield
        if by_itself:
            train_step_losses.say(model, of_step, met=bool(met))


def _reduced_already(
    model: Any, ranks: int, share: Share, batch: Batch | None, met: list[bool], of_layers: Kinds
) -> AbstractContextManager[None]:
    """Within this context, scale losses that are already one number: a sum by the number of ranks, a mean by the
    batch's size. They are the losses that layers add, and the result of the model's own `compute_loss`."""
    compute_loss, aggregate = model.compute_loss, model._aggregate_additional_loss
    kinds: list[str | None] = []  # kinds of the added losses that `aggregated` has not met yet

    def measured(*args: Any, **kwargs: Any) -> Any:
        with uncounted():
            return taken(*args, **kwargs)

    def taken(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(("x", "y", "y_pred"), args, strict=False)) | kwargs
        if batch is not None:
            batch.measure(given.get("y_pred"), given.get("x"))
        kinds[:] = kinds_of_added(model, given.get("x"), of_layers)
        met.append(True)
        if not own_loss.is_own(compute_loss):
            return compute_loss(*args, **kwargs)
        kind = own_loss.kind_of(model, compute_loss, args, kwargs)
        with of_all_ranks(kind.apart, share, ranks, uneven=batch is not None, name="compute_loss"):
            loss = compute_loss(*args, **kwargs)
        return own_loss.scaled(loss, kind, ranks, by_size)

    def aggregated(loss: Any) -> Any:
        total, kind = aggregate(loss), kinds.pop(0) if kinds else None
        return total * ranks if kind == SUM else total if kind == JOINED else by_size(total)

    def by_size(mean: Any) -> Any:
        return mean if batch is None else batch.by_size(mean)

    return laid_over(model, STAYS, compute_loss=measured, _aggregate_additional_loss=aggregated)


@contextmanager
def _compiled_losses(model: Any, ranks: int, share: Share, batch: Batch | None, met: list[bool]) -> Iterator[None]:
    from keras.src.losses import loss as keras_losses

    compiled = model._compile_loss
    if compiled is None:
        yield
        return
    own, reduce, take = compiled.call, keras_losses.reduce_weighted_values, keras_losses.Loss.__call__
    for _, loss, _, name in compiled._flat_losses or ():
        if type(loss).__call__ is not take:
            once(f"loss {name or loss.name!r} has a `__call__` of its own; name that method `call`. {UNSEEN}")
    # (loss, y_true, y_pred) of each loss that is being computed, since a user's loss may call others; and how each loss
    # depends on its rows, once known.
    taken: list[tuple[Any, Any, Any]] = []
    parts: list[Apart | None] = []
    seen: set[str] = set()  # names of the replaced functions that were called

    def reduced(values: Any, sample_weight: Any = None, mask: Any = None, reduction: Any = "mean", dtype: Any = None):  # type: ignore[no-untyped-def]
        seen.add("reduce_weighted_values")
        if len(taken) > 1:
            return reduce(values, sample_weight, mask, reduction, dtype)
        kind = None
        if taken:
            by_itself, name = len(values.shape) == 0, name_of(taken[-1][0], compiled)
            kind = kind_of(*taken[-1], parts[-1], by_itself=by_itself, name=name)
        return _reduced(reduce, values, sample_weight, mask, reduction, dtype, ranks, share, batch, kind)

    def taking(loss: Any, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        seen.add("Loss.__call__")
        taken.append((loss, y_true, y_pred))
        parts.append(None)
        try:
            with ExitStack() as once:
                once.enter_context(laid_over(loss, STAYS, call=partial(first_call, loss, once.close)))
                return take(loss, y_true, y_pred, *args, **kwargs)
        finally:
            taken.pop()
            parts.pop()

    def first_call(loss: Any, restore: Callable[[], None], y_true: Any, y_pred: Any) -> Any:
        """Call the loss once, and take the sums that need it over all ranks."""
        restore()
        parts[-1] = apart_of(loss, y_true, y_pred) if len(taken) == 1 else None
        with of_all_ranks(parts[-1], share, ranks, uneven=batch is not None, name=f"loss {loss.name!r}"):
            return loss.call(y_true, y_pred)

    def call(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        met.append(True)
        if batch is not None and batch.size is None:
            batch.measure(y_pred)
        reduction = laid_over(keras_losses, STAYS, reduce_weighted_values=reduced)
        with reduction, laid_over(keras_losses.Loss, STAYS, __call__=taking):
            total = own(y_true, y_pred, *args, **kwargs)
        if seen == {"Loss.__call__"}:  # otherwise each rank would silently take its own mean
            raise RingscopeError(unmet(REDUCTION, "losses of the joined batch"))
        return own_loss.of_each_sample(total, ranks) if len(total.shape) else total

    with laid_over(compiled, STAYS, call=call):
        yield


def _reduced(
    reduce: Callable[..., Any],
    values: Any,
    sample_weight: Any,
    mask: Any,
    reduction: str | None,
    dtype: Any,
    ranks: int,
    share: Share,
    batch: Batch | None,
    kind: str | None,
) -> Any:
    if len(values.shape) == 0:  # a user's loss function has reduced the batch to one number
        number = tf.convert_to_tensor(values) if dtype is None else tf.cast(values, dtype)
        if kind == SUM:
            number *= ranks
        reported = number
        if kind not in (SUM, JOINED) and batch is not None:
            number = batch.by_size(number)
        if reduction in (None, "none") and not (sample_weight is None and mask is None):
            # Keras makes a loss per sample of it: the gradient is that of their sum, and their mean is reported.
            total, shown = (
                one * _mean_weight(sample_weight, mask, each, number.dtype, share)
                for one, each in ((number, "sum"), (reported, "mean"))
            )
            of_samples = tf.ones_like(reduce(values, sample_weight, mask, reduction, dtype))
            part = total / (ranks * _elements(of_samples, number.dtype))  # `of_each_sample` multiplies by the ranks
            return of_samples * (part + tf.stop_gradient(shown - part))
        return number * _mean_weight(sample_weight, mask, reduction, number.dtype, share)
    if kind == JOINED:  # these numbers were computed from sums over all ranks
        return reduce(values, sample_weight, mask, reduction, dtype)
    if reduction == "sum":
        return reduce(values, sample_weight, mask, reduction, dtype) * ranks
    if reduction in (None, "none"):
        return reduce(values, sample_weight, mask, reduction, dtype)
    by_weight = reduction == "mean_with_sample_weight"
    differs = kind == SOME or batch is not None or mask is not None or (by_weight and sample_weight is not None)
    if not differs:
        return reduce(values, sample_weight, mask, reduction, dtype)
    total = reduce(values, sample_weight, mask, "sum", dtype)
    if by_weight and (sample_weight is not None or mask is not None):
        own = _sum_of_weights(sample_weight, mask, total.dtype)
    else:
        own = _elements(values, total.dtype)
        if mask is not None:
            own *= tf.reduce_mean(tf.cast(mask, total.dtype))
    # The denominator is 0 if no rank has an unmasked element.
    return tf.math.divide_no_nan(total * ranks, share(own))


def _mean_weight(sample_weight: Any, mask: Any, reduction: str | None, dtype: Any, share: Share) -> Any:
    """The factor by which Keras multiplies a loss that is one number for the batch, taken over all ranks: the mean
    weight of the unmasked samples, or the sum of the weights for reduction "sum"."""
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
    """The sum of the weights as Keras takes it: the mask is applied to the weights, and both keep their shapes."""
    from keras.src.losses import loss as keras_losses

    weights = keras_losses.apply_mask(
        None if sample_weight is None else tf.cast(sample_weight, dtype),
        mask,
        dtype=dtype,
        reduction="mean_with_sample_weight",
    )
    return tf.reduce_sum(tf.cast(weights, dtype))


@contextmanager
def _tracked(model: Any, batch: Batch | None) -> Iterator[None]:
    """Within this context, weight the reported loss so that its sum over ranks is that of the joined batches.

    Keras reports the mean over batches, weighted by their sizes. Where sizes differ between ranks, each rank weights
    its part of the joined loss by the mean size, so that the sum over ranks weights the joined loss by the joined size.
    A loss per sample is no part of a joined loss, so it is weighted by the rank's own size.
    """
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

    with laid_over(tracker, STAYS, update_state=update_state):
        yield
