"""Find out how a loss depends on the samples of its batch: as their mean, their sum, or neither.

The ranks' gradients are averaged. For a mean over samples this gives the gradient on the joined batch; for a sum, 1/N
of it. A loss that combines samples with each other (Dice, pairs in a batch) differs between the halves of a batch and
the whole. A loss does not declare its kind, so ring tries it once, while the step is traced: on made-up rows with the
shapes and types of its arguments, and on their halves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from ..internals.frameworks import tf
from ..say import once
from . import normalization
from .ratios import Apart, look
from .reductions import compared_with
from .trial import OPEN, PARTS, is_known, labels_at_hand, made_rows, tried, with_some

MEAN, SUM, NEITHER = "mean", "sum", "neither"
JOINED = "joined"  # computed from sums over all ranks
SOME = "some"  # a value for each row that a mask keeps, so that ranks have unlike many
# rows per trial: few for a whole model and for large rows, many if the loss draws noise
ROWS, FEW_ROWS, MANY_ROWS = 16, 4, 64
LARGE = 1 << 20  # elements of a large row
# Tries, half of them with labels at or beside the constants that the loss compares with, and the last two with wide
# predictions. Both halves may by chance have equally many labels above a bound; then a mean weighted by these labels
# looks like a plain mean.
DRAWS = 8
ORDERS = 3  # tries with labels of the training batch in a random order
EXACT, NOISY = 1e-3, 0.25  # relative tolerances; NOISY for losses that draw random numbers
SAME = 1e-6  # relative tolerance; only a loss that draws random numbers differs by more on equal rows
ROUNDED = {"bfloat16": 0.02, "float16": 0.007}  # EXACT for values that are computed in these types
OF_A_BATCH = ("dice", "tversky")  # Keras's losses that give one number for a batch
ACROSS = ("Circle",)  # Keras's losses that compare pairs in a batch, although they give a number for each sample


Kinds = dict[int, list[str | None]]
"""Id of a layer -> how each loss that the layer's calls added depends on the batch (`Apart.kinds`); None: not known."""

TOGETHER = "to sum or average over all ranks use ring.sum(values) or ring.mean(values, mask)"
UNSEEN = (
    "A mean over samples is right if all batches have one size. A sum gives gradients that are N times too small on N "
    "ranks. A loss that compares samples, or divides by the number that a mask keeps, sees the samples of its own rank "
    f"only; {TOGETHER}"
)


_kinds: weakref.WeakKeyDictionary[Any, dict[str, str | None]] = weakref.WeakKeyDictionary()


_apart: weakref.WeakKeyDictionary[Any, dict[str, Apart | None]] = weakref.WeakKeyDictionary()


def apart_of(loss: Any, y_true: Any, y_pred: Any) -> Apart | None:
    """Read from a loss's graph how it depends on its samples, once for each shape; None if the graph does not show
    it. Also None for Keras's own losses that give a number for each sample, because their kind is known."""
    if is_keras(loss) and getattr(getattr(loss, "fn", None), "__name__", "") not in OF_A_BATCH:
        return None
    shapes = shapes_of((y_true, y_pred))
    known = _apart.setdefault(loss, {})
    if shapes not in known:
        known[shapes] = look(loss.call, (y_true, y_pred), (False, True))
    return known[shapes]


def is_keras(loss: Any) -> bool:
    """True if this loss or regulariser is Keras's own."""
    return all((each.__module__ or "").startswith("keras.") for each in (type(loss), getattr(loss, "fn", loss)))


OF_ROWS = {"rows", "some rows"}
WHOLE = {"mean", "fixed", "sum", "joined"}
KINDS_OF_APART = {"mean": MEAN, "rows": MEAN, "some rows": SOME, "fixed": MEAN, "sum": SUM, "joined": JOINED}


def kind_of(loss: Any, y_true: Any, y_pred: Any, apart: Apart | None, *, by_itself: bool, name: str) -> str | None:
    """The loss's kind, found once for each shape; None: unknown. Prints a line if the averaged gradients are wrong.

    apart: what the loss's graph shows. by_itself: True if the loss gives one number for its batch, not one for each
    sample. name: the loss's name in these lines.
    """
    shapes = shapes_of((y_true, y_pred))
    known = _kinds.setdefault(loss, {})
    if apart is not None:
        known[shapes] = KINDS_OF_APART[apart.kind]
    if shapes not in known:
        known[shapes] = _loss_kind(loss, y_true, y_pred, by_itself=by_itself)
        if by_itself and known[shapes] in (MEAN, SUM) and _differs_of_labels_at_hand(loss, y_true, y_pred):
            # The line is only printed, because only this rank's labels show it, and all ranks must scale the loss
            # alike.
            once(_no_mean(name))
    kind = known[shapes]
    kept = [value.name for value in vars(loss).values() if isinstance(value, (keras.Variable, tf.Variable))]
    if kept:
        once(f"loss {name} keeps {', '.join(kept)} between batches: each rank has its own, and ring averages none")
    if kind == NEITHER:
        once(_no_mean(name))
    elif kind is None and by_itself:
        once(
            f"loss {name} gives one number for its batch, and ring could not try whether that is a mean over"
            f" samples; a sum gives gradients that are N times too small on N ranks; {TOGETHER}"
        )
    return kind


def name_of(loss: Any, compiled: Any) -> str:
    """The loss's name, and its outputs' names if the model has several losses, whose own names may be the same."""
    losses = compiled._flat_losses or ()
    outputs = [repr(name) for _, one, _, name in losses if one is loss and name]
    return f"{loss.name!r} of output {' and '.join(outputs)}" if len(losses) > 1 and outputs else repr(loss.name)


def _no_mean(name: str) -> str:
    return (
        f"loss {name} is not a mean over samples. Each rank computes it on its own batch, so the averaged"
        f" gradient is not that of the joined batch; {TOGETHER}"
    )


def _differs_of_labels_at_hand(loss: Any, y_true: Any, y_pred: Any) -> bool:
    labels = labels_at_hand(y_true)
    count = 0 if labels is None else len(tf.nest.flatten(labels)[0]) // 2 * 2  # even, so that there are two halves
    rows, random = min(count, MANY_ROWS), np.random.default_rng(0)
    # In one order both halves may by chance have the same labels.
    orders = [np.arange(rows), *(random.permutation(rows) for _ in range(ORDERS))] if rows else []
    tries = [_values_of_rows(loss, _in_order(labels, order), y_pred, random) for order in orders]
    return _kind_of_tries(tries, ROUNDED.get(loss.dtype, EXACT)) == NEITHER


def _in_order(labels: Any, order: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: leaf[order], labels)


def shapes_of(given: Any) -> str:
    """A key for the shapes of a loss's arguments."""
    return str(tf.nest.map_structure(lambda leaf: getattr(leaf, "shape", None), given))


def kinds_of_added(model: Any, x: Any, of_layers: Kinds) -> list[str | None]:
    """The kind of each loss that a layer has added. Prints a line for each loss that is not a mean, a sum or joined.
    of_layers: layer's id -> `Apart.kinds` of its losses; None stands for those that its graph does not show."""
    owners = [layer for layer in model._flatten_layers() for _ in layer._get_own_losses()]
    if not owners:
        return []
    counts = {id(layer): owners.count(layer) for layer in owners}
    known = {each for each, kinds in of_layers.items() if len(kinds) == counts.get(each) and {*kinds} <= WHOLE}
    kinds = None if counts.keys() <= known else _tried_kinds(model, x)
    if kinds is None or len(kinds) != len(owners):
        kinds = [None] * len(owners)
    waiting = {each: [KINDS_OF_APART[str(kind)] for kind in of_layers[each]] for each in known}
    for i, layer in enumerate(owners):
        if id(layer) in known:
            kinds[i] = waiting[id(layer)].pop(0)
    for i, (layer, kind) in enumerate(zip(owners, kinds, strict=True)):
        # Made-up rows may never be those that a mask leaves out.
        read = of_layers.get(id(layer), [] if type(layer).__module__.startswith("keras.") else [None])
        if {None, NEITHER} & {kind, *read}:
            why = "is not a mean over samples" if NEITHER in (kind, *read) else "cannot be read from its graph"
            turn, count = owners[: i + 1].count(layer), counts[id(layer)]
            which = "the loss" if count == 1 else f"loss {turn} of the {count}"
            once(
                f"{which} that layer {layer.name!r} adds {why}: the gradients are the mean of each rank's own;"
                f" {TOGETHER}"
            )
    return kinds


def _loss_kind(loss: Any, y_true: Any, y_pred: Any, *, by_itself: bool) -> str | None:
    """The kind of a keras.Loss, tried on made-up rows of these shapes and types; None if the trial does not tell.

    by_itself: True if the loss gives one number for its batch. The kind of Keras's losses that give one number for each
    sample is known.
    """
    if not by_itself and is_keras(loss):
        return NEITHER if type(loss).__name__ in ACROSS else MEAN
    if not all(is_known(leaf) for leaf in tf.nest.flatten((y_true, y_pred))):
        return None
    large = any(np.prod([size or OPEN for size in leaf.shape[1:]]) > LARGE for leaf in tf.nest.flatten(y_pred))
    random = np.random.default_rng(0)
    rows, constants = FEW_ROWS if large else ROWS, compared_with(loss.call, (y_true, y_pred))
    tries = []
    for draw in range(DRAWS):
        labels = made_rows(y_true, random, rows, labels=True)
        if draw % 2:
            labels = with_some(labels, random, constants, beside=draw == 1)
        tries.append(_values_of_rows(loss, labels, y_pred, random, wide=draw >= DRAWS - 2))
    kind = _kind_of_tries(tries, ROUNDED.get(loss.dtype, EXACT))
    # Made-up labels may lack those that a mask leaves out.
    return None if by_itself and constants is None and kind == MEAN else kind


def _kind_of_tries(tries: Sequence[list[float] | None], exact: float) -> str | None:
    values = [each for each in tries if each is not None]
    # Tried with noise, a loss may by chance look like one without, so one noisy try decides.
    noisy = any(not np.isclose(whole, again, rtol=SAME, equal_nan=True) for again, whole, *_ in values)
    kinds = {kind_of_values(w, a, f, s, exact, noisy=noisy) for _, w, a, f, s in values}
    if NEITHER in kinds:
        return NEITHER
    told = kinds - {None}  # a try with noise, or with all rows masked, may say nothing
    return told.pop() if len(told) == 1 else None


def _values_of_rows(loss: Any, labels: Any, y_pred: Any, random: Any, *, wide: bool = False) -> list[float] | None:
    """The loss's values for these labels and made-up predictions, for each of PARTS, and once more on all rows; None if
    the loss does not accept them."""
    from keras import StatelessScope

    made = [labels, made_rows(y_pred, random, len(tf.nest.flatten(labels)[0]), wide=wide)]

    def value(part: Callable[[Any], Any]) -> float:
        true, pred = (
            tf.nest.map_structure(lambda leaf: tf.cast(tf.constant(part(leaf)), loss.dtype), each) for each in made
        )
        with StatelessScope():  # variables keep their values whatever the loss assigns
            return float(tf.reduce_mean(tf.cast(loss.call(true, pred), tf.float64)))

    return tried(lambda: [value(part) for part in (PARTS[0], *PARTS)], "/CPU:0")  # type: ignore[no-any-return]


def _tried_kinds(model: Any, x: Any) -> list[str | None] | None:
    """The kind of each loss that the model's layers add when it is called with these inputs, in the order of the
    layers; None if the model cannot be tried."""
    layers = list(model._flatten_layers())
    with added_losses_kept(layers):
        kinds = _added_kinds(model, layers, x, FEW_ROWS)
        # the loss may by chance be equal on both halves
        again = _added_kinds(model, layers, x, FEW_ROWS + 2) if kinds else None
        if kinds and None in (*kinds, *(again or ())):
            return _added_kinds(model, layers, x, MANY_ROWS)
        if not kinds or not again or len(again) != len(kinds):
            return kinds
        return [one if one == other else NEITHER for one, other in zip(kinds, again, strict=True)]


@contextmanager
def added_losses_kept(layers: Iterable[Any]) -> Iterator[None]:
    """Within this context, keep the losses that layers have added, because a call clears them before they are used."""
    kept = [(layer, layer._losses[:], set(layer._loss_ids)) for layer in layers]
    try:
        yield
    finally:
        for layer, losses, ids in kept:
            layer._losses[:] = losses
            layer._loss_ids = ids


def _added_kinds(model: Any, layers: list[Any], x: Any, rows: int) -> list[str | None] | None:
    from keras import StatelessScope

    made = made_rows(x, np.random.default_rng(0), rows)
    if made is None:
        return None

    def values(part: Any) -> list[float]:
        # Variables keep their values whatever layers assign; Keras's regularisers look up each weight in the scope.
        with StatelessScope(state_mapping=[(v, v.value) for v in model.trainable_variables], collect_losses=True):
            model(tf.nest.map_structure(lambda leaf: tf.constant(part(leaf)), made), training=True)
            added = [loss for layer in layers for loss in layer._get_own_losses()]
            return [float(tf.reduce_sum(tf.cast(loss, tf.float64))) for loss in added]

    with normalization.alone(model):  # other ranks may not trace this shape, so nothing may be exchanged
        found = tried(lambda: [values(part) for part in PARTS])
    if found is None or len({len(each) for each in found}) > 1:
        return None
    exact = max(ROUNDED.get(layer.compute_dtype, EXACT) for layer in layers)
    return [kind_of_values(*each) for each in zip(*found, [exact] * len(found[0]), strict=True)]


def kind_of_values(
    whole: float, again: float, first: float, second: float, exact: float = EXACT, *, noisy: bool | None = None
) -> str | None:
    """The kind of a loss, from its values on some rows, on these rows in another order, and on each half. exact:
    relative tolerance. noisy: True if the loss draws random numbers; None: unknown, so that a value that differs in
    another order counts as noise."""
    values = [whole, again, first, second]
    if not np.all(np.isfinite(values)) or not any(values):  # a loss that is 0 on all made-up rows says nothing
        return None
    size = max(map(abs, values))  # the rounding of a sum is relative to what is summed, whose signs may differ

    def near(other: float, relative: float) -> bool:
        return abs(whole - other) <= relative * size + 1e-6

    in_any_order = near(again, exact / 3)
    random = noisy or (noisy is None and not in_any_order)
    if not random and not in_any_order:
        return NEITHER
    tolerance = NOISY if random else exact
    mean, total = near((first + second) / 2, tolerance), near(first + second, tolerance)
    if mean or total:
        return None if mean and total else MEAN if mean else SUM
    return None if random else NEITHER
