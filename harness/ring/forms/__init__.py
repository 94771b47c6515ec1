"""Parts of a Keras model in forms that XLA makes fewer and faster GPU kernels of; the same numbers up to rounding. What
is drawn by `tf.random` is drawn right, and images are resized right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..exchange import has_gpu
from ..say import once
from . import (
    aligned,
    attention,
    depthwise,
    dilated,
    draws,
    entropy,
    gelu,
    layers,
    lined_up,
    products,
    projected,
    resized,
)


@contextmanager
def forms(model: Any) -> Iterator[None]:
    """While it lasts, the model is traced in these forms; the model itself is not changed."""
    on_gpu = has_gpu()
    if on_gpu and (names := attention.with_dropout(model)):
        some = ", ".join(names[:3]) + (", ..." if names[3:] else "")
        once(
            f"attention with dropout ({some}) is computed in Keras's own way; with dropout=0 in these layers the"
            " fused kernel of cuDNN takes it"
        )
    with (
        layers.forms(model),
        products.flat(),
        aligned.multiples(),
        gelu.light(),
        entropy.short(),
        depthwise.filters(),
        dilated.as_such(),
        resized.by_own_weights(),
        projected.gathered(),
        lined_up.rows(),
        draws.from_seeds(model),
        attention.fused() if on_gpu else nullcontext(),  # the kernel is cuDNN's
    ):
        yield
