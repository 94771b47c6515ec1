"""Normalisations and softmax over the last axis of four axes and more, computed of a matrix's rows.

XLA makes one Triton kernel of each, and while it fuses others with it tries every way to cut the tensor into tiles:
powers of two along each axis. Of four axes these are so many that a ConvNeXt's took it 17 of 26 s, and 1.6 of 9 of two
axes (docs/results, 2026-11-25; without the trials of convolutions). It comes to as many kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over

AXES = 4  # from this number on: a decoder's three cost it 0.7 s


@contextmanager
def rows() -> Iterator[None]:
    """While it lasts, Keras's layer and RMS normalisations, and TensorFlow's softmax, are traced so."""
    from keras.src.ops import nn

    with (
        laid_over(nn, **{name: _of_rows(getattr(nn, name)) for name in ("_layer_normalization", "_rms_normalization")}),
        laid_over(tf.nn, softmax=_of_rows(tf.nn.softmax, of_logits=True), log_softmax=_of_rows(tf.nn.log_softmax)),
    ):
        yield


def _of_rows(own: Callable[..., Any], *, of_logits: bool = False) -> Callable[..., Any]:
    """own: takes a tensor, and by name over which axis. of_logits: it gives shares, whose logits Keras's losses take
    where these come of a softmax, or have them as this attribute."""

    def over_last(*args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or not _is_last(args[0], kwargs.get("axis", -1)):
            return own(*args, **kwargs)
        (given,) = args
        outputs = own(tf.reshape(given, [-1, given.shape[-1]]), **kwargs | {"axis": -1})
        outputs = tf.reshape(outputs, [given.shape[0] or -1, *given.shape[1:]])
        if of_logits:
            outputs._keras_logits = given
        return outputs

    return over_last


def _is_last(given: Any, axis: int | Sequence[int] | None) -> bool:
    if not isinstance(given, tf.Tensor) or given.shape.rank is None or given.shape.rank < AXES:
        return False
    if isinstance(axis, Sequence):
        axis = axis[0] if len(axis) == 1 else None
    return axis in (-1, given.shape.rank - 1) and given.shape[1:].is_fully_defined()
