"""Normalisation and softmax over the last of four or more axes, computed on the rows of a matrix.

XLA makes a Triton kernel for each. While it fuses other operations into this kernel, it tries every tiling of the
tensor: powers of two along each axis. With four axes a ConvNeXt's tilings took 17 of 26 s of compilation, with two axes
1.6 of 9 s (docs/results, 2026-11-25; without the trials of convolutions). The number of kernels is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over

AXES = 4  # number of axes from which this form is used; a decoder's three axes cost only 0.7 s


@contextmanager
def rows() -> Iterator[None]:
    """Within this context, Keras's layer and RMS normalisation, and TensorFlow's softmax, are traced on rows."""
    from keras.src.ops import nn

    with (
        laid_over(nn, **{name: _of_rows(getattr(nn, name)) for name in ("_layer_normalization", "_rms_normalization")}),
        laid_over(tf.nn, softmax=_of_rows(tf.nn.softmax, of_logits=True), log_softmax=_of_rows(tf.nn.log_softmax)),
    ):
        yield


def _of_rows(own: Callable[..., Any], *, of_logits: bool = False) -> Callable[..., Any]:
    """The function `own`, called on rows. own: a function of a tensor and, by name, an axis. of_logits: True if its
    results get the attribute by which Keras's losses find the logits of a softmax."""

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
