"""Find out whether the loss of a model's own `compute_loss` is a mean or a sum over samples.

The losses of `compile` are tried one by one elsewhere (loss_kinds.py). A model's class may compute another number for
the batch, beside these losses or instead of them. To try that number alone, Keras's part of the loss is replaced by 0.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..internals.frameworks import defining, keras, tf
from ..internals.laid_over import STAYS, laid_over
from ..say import once
from . import normalization
from .loss_kinds import (
    EXACT,
    FEW_ROWS,
    KINDS_OF_APART,
    MEAN,
    NEITHER,
    OF_ROWS,
    ROUNDED,
    SUM,
    TOGETHER,
    added_losses_kept,
    kind_of_values,
    shapes_of,
)
from .ratios import Apart, look
from .reductions import compared_with
from .trial import PARTS, made_rows, tried, with_some

NAMES = ("x", "y", "y_pred", "sample_weight", "training")  # the arguments of Keras's compute_loss, in order


class Kind(NamedTuple):
    """The way in which the loss of a model's own `compute_loss` depends on its samples. kind: the kind of the model's
    own part of the loss. beside: True if Keras's part is added to it. apart: what the loss's graph shows; None if it
    shows nothing."""

    kind: str | None
    beside: bool
    apart: Apart | None = None


_known: weakref.WeakKeyDictionary[Any, dict[str, Kind]] = weakref.WeakKeyDictionary()


def is_own(compute_loss: Callable[..., Any]) -> bool:
    """True if this method of a model was replaced, so that it is not Keras's."""
    return getattr(compute_loss, "__func__", compute_loss) is not keras.Model.compute_loss


def kind_of(model: Any, compute_loss: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kind:
    """The kind of the model's loss, found once for each shape of the arguments. Prints a line if the averaged gradients
    are wrong."""
    shapes = shapes_of([args, kwargs])
    known = _known.setdefault(model, {})
    if shapes not in known:
        known[shapes] = _kind(model, compute_loss, args, kwargs)
    kind, beside, _ = known[shapes]
    name = f"{type(model).__name__}.compute_loss"
    if kind == NEITHER:
        once(
            f"{name}'s loss is not a mean over samples. Each rank computes it on its own batch, so the averaged"
            f" gradient is not that of the joined batch; {TOGETHER}"
        )
    elif kind is None:
        once(
            f"could not try {name}'s loss: a mean over samples is right; a sum gives gradients that are N times too"
            f" small on N ranks; {TOGETHER}"
        )
    elif kind == SUM and beside:
        once(
            f"{name} adds a sum over samples as a loss, so on N ranks its gradients are N times too small; use a mean,"
            " or call self.add_loss in a layer"
        )
    return known[shapes]


def scaled(loss: Any, kind: Kind, ranks: int, by_size: Callable[[Any], Any]) -> Any:
    """A rank's loss, scaled so that the mean over ranks is the loss on the joined batch. by_size: weights a mean
    over this batch by the batch's size."""
    loss = tf.convert_to_tensor(loss)
    if kind[:2] == (SUM, False):
        return of_each_sample(loss, ranks) if len(loss.shape) else loss * ranks
    return by_size(loss) if kind[:2] == (MEAN, False) else loss


def of_each_sample(losses: Any, ranks: int) -> Any:
    """The losses (one per sample) with their values, which Keras reports as a mean, and with `ranks` times their
    gradient, because gradients are averaged over ranks and the losses count as a sum."""
    return losses * ranks - tf.stop_gradient(losses * (ranks - 1))


def _kind(model: Any, compute_loss: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kind:
    beside: list[list[Any]] = []  # the sample weights of each call of Keras's part
    kept = added_losses_kept(model._flatten_layers())
    with _keras_takes_nothing(model, beside), normalization.alone(model), kept:
        apart = _apart(model, compute_loss, args, kwargs, (), beside)
        if apart is not None and apart.kinds[0] == SUM and beside:  # the own part of the loss could not be scaled alone
            apart = _apart(model, compute_loss, args, kwargs, (SUM,), beside)
        if apart is not None:
            own = apart.kinds[0]
            # The gradient of several numbers is the gradient of their sum.
            return Kind(SUM if own in OF_ROWS else KINDS_OF_APART[own], bool(beside), apart)
        beside.clear()
        constants = compared_with(_discarding(model, compute_loss, args, kwargs), [*args, *kwargs.values()])
        values = partial(_values, model, compute_loss, args, kwargs, constants)
        tries = [values(rows) for rows in (FEW_ROWS, FEW_ROWS + 2)]
        more = [values(FEW_ROWS, beside=True), values(FEW_ROWS, wide=True)]  # not every loss accepts them
    exact = ROUNDED.get(model.compute_dtype, EXACT)
    kinds = [None if each is None else kind_of_values(*each, exact) for each in tries]
    kinds += [NEITHER for each in more if each is not None and kind_of_values(*each, exact) == NEITHER]
    # the model's method adds nothing to Keras's part
    if beside and not any(each is None or any(each) for each in tries):
        return Kind(MEAN, True)
    if constants is None and MEAN in kinds:  # made-up labels may lack those that a mask leaves out
        return Kind(None, bool(beside))
    # Try several times, because the loss may by chance be equal on both halves.
    return Kind(kinds[0] if len(set(kinds)) == 1 else None if None in kinds else NEITHER, bool(beside))


def _apart(
    model: Any,
    compute_loss: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    joins: tuple[str, ...],
    beside: list[list[Any]],
) -> Apart | None:
    """The way in which the loss, and the weights that it gives to Keras's part, depend on the rows of the batch."""
    names = [*NAMES[: len(args)], *kwargs]
    taken = _discarding(model, compute_loss, args, kwargs)

    def with_weights(*given: Any) -> list[Any]:
        beside.clear()
        return [taken(*given), *(weight for weights in beside for weight in weights)]

    return look(with_weights, [*args, *kwargs.values()], [name == "y_pred" for name in names], joins=joins)


def _discarding(
    model: Any, compute_loss: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """`compute_loss` as a function of the values of `args` and `kwargs`; its assignments to variables are discarded."""
    from keras import StatelessScope

    def taken(*given: Any) -> Any:
        with StatelessScope(state_mapping=[(v, v.value) for v in model.trainable_variables], collect_losses=True):
            return compute_loss(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))

    return taken


def _values(
    model: Any,
    compute_loss: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: Sequence[float] | None,
    rows: int,
    *,
    beside: bool = False,
    wide: bool = False,
) -> tuple[float, float, float, float] | None:
    """The loss on made-up rows, on these rows in another order, and on each half; None if the model does not accept
    them. constants, beside: which values some labels have (`with_some`). wide: True for wide predictions (`made_rows`).
    """
    from keras import StatelessScope

    random = np.random.default_rng(0)

    def made(name: str, spec: Any) -> Any:
        """Made-up values for one argument; None, which few losses accept, if that is impossible."""
        given = any(leaf is not None and tf.is_tensor(leaf) for leaf in tf.nest.flatten(spec))
        own = made_rows(spec, random, rows, labels=name == "y", wide=wide and name == "y_pred") if given else spec
        return with_some(own, random, constants, beside=beside) if name == "y" and given and own is not None else own

    named = {**dict(zip(NAMES, args, strict=False)), **kwargs}
    whole = {name: made(name, spec) for name, spec in named.items()}

    def value(part: Callable[[Any], Any]) -> float:
        def cut(leaf: Any) -> Any:
            return tf.constant(part(leaf)) if isinstance(leaf, np.ndarray) else leaf

        of_part = {name: tf.nest.map_structure(cut, each) for name, each in whole.items()}
        positional = [of_part.pop(name) for name, _ in zip(NAMES, args, strict=False)]
        # The scope discards assignments to variables.
        with StatelessScope(state_mapping=[(v, v.value) for v in model.trainable_variables], collect_losses=True):
            return float(tf.reduce_sum(tf.cast(compute_loss(*positional, **of_part), tf.float64)))

    found: tuple[float, float, float, float] | None = tried(lambda: tuple(value(part) for part in PARTS))
    return found


@contextmanager
def _keras_takes_nothing(model: Any, met: list[list[Any]]) -> Iterator[None]:
    """Within this context Keras's part of the loss, and the losses of `compile`, are 0. met: gets the sample weights
    when the model calls Keras's part."""

    def nothing(at: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            weights = tf.nest.flatten(kwargs.get("sample_weight", args[at] if len(args) > at else None))
            met.append([each for each in weights if tf.is_tensor(each)])
            return tf.zeros(())

        return call

    compiled = model._compile_loss
    calls = nullcontext() if compiled is None else laid_over(compiled, STAYS, call=nothing(2))
    with laid_over(defining("compute_loss"), STAYS, compute_loss=nothing(4)), calls:
        yield
