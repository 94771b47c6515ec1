"""Parts of a Keras model in forms that XLA makes fewer and faster GPU kernels of; the same numbers up to rounding.
Random numbers of `tf.random` and resized images are right in them."""

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

# By the names of their modules, which RINGSCOPE_WITHOUT_FORMS takes; the later are laid over the earlier.
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
    """While it lasts, the model is traced in these forms; the model itself is not changed."""
    with ExitStack() as laid:
        if wanted("layers"):
            laid.enter_context(layers.forms(model))
        for name, form in OF_FUNCTIONS.items():
            if wanted(name):
                laid.enter_context(form())
        if wanted("draws"):  # needed for right numbers, not for speed: without it a model trains without XLA
            laid.enter_context(draws.from_seeds(model))
        if has_gpu() and wanted("attention"):  # the kernel is cuDNN's
            laid.enter_context(attention.fused())
            if wanted("written"):
                laid.enter_context(written.fused())
        yield
