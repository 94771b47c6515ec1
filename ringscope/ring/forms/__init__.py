"""Parts of a Keras model in forms for which XLA makes fewer and faster GPU kernels, with the same numbers up to
rounding.

Other forms make a compiled step right: random numbers of `tf.random`, and resized images.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..internals.frameworks import has_gpu
from . import (
    attention,
    augmented,
    bare,
    depthwise,
    dilated,
    draws,
    entropy,
    gelu,
    hashed,
    last_axis,
    layers,
    lookups,
    padded_products,
    pointwise,
    products,
    projected,
    resized,
    translated,
    written,
)
from .choice import wanted

# Keys are names for RINGSCOPE_WITHOUT_FORMS; later forms wrap earlier ones.
OF_FUNCTIONS = {
    "bare": bare.of_one_stack,
    "translated": translated.at_once,
    "products": products.flat,
    "padded_products": padded_products.multiples,
    "gelu": gelu.light,
    "entropy": entropy.short,
    "depthwise": depthwise.filters,
    "pointwise": pointwise.as_products,
    "dilated": dilated.as_such,
    "resized": resized.by_own_weights,
    "projected": projected.gathered,
    "augmented": augmented.compiled,
    "lookups": lookups.halving,
    "last_axis": last_axis.rows,
    "hashed": hashed.dropout,
}


@contextmanager
def forms(model: Any) -> Iterator[None]:
    """Within this context, the model is traced in these forms; the model itself is not changed."""
    with ExitStack() as laid:
        if wanted("layers"):
            laid.enter_context(layers.forms(model))
        for name, form in OF_FUNCTIONS.items():
            if wanted(name):
                laid.enter_context(form())
        if wanted("draws"):  # for right numbers, not for speed: without it the step is not compiled
            laid.enter_context(draws.from_seeds(model))
        if has_gpu() and wanted("attention"):  # the kernel is cuDNN's
            laid.enter_context(attention.fused())
            if wanted("written"):
                laid.enter_context(written.fused())
        yield
