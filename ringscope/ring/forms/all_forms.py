"""All forms, and the model traced in them: ring's own versions of parts of a Keras model, for a compiled step.

With most forms XLA makes fewer and faster GPU kernels, with equal numbers up to rounding. Some make XLA compute what
TensorFlow computes: random numbers of `tf.random`, and resized images.
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
    elastic,
    entropy,
    gathered,
    gelu,
    halves,
    hash_buckets,
    hashed,
    last_axis,
    layers,
    lookups,
    padded_products,
    pointwise,
    products,
    projected,
    resized,
    shared,
    sliced,
    translated,
    written,
)
from .choice import wanted

# The keys are the forms' names in RINGSCOPE_WITHOUT_FORMS; a later form wraps the results of earlier ones.
OF_FUNCTIONS = {
    "bare": bare.of_one_stack,
    "shared": shared.constants,
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
    "sliced": sliced.anywhere,
    "augmented": augmented.compiled,
    "elastic": elastic.at_once,
    "lookups": lookups.halving,
    "hash_buckets": hash_buckets.of_digits,
    "gathered": gathered.rows,
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
        if wanted("halves") and halves.one_loss_reads_logits(model):
            laid.enter_context(halves.of_heads())
        if wanted("draws"):  # this form is for right numbers, not for speed: without it the step is not compiled
            laid.enter_context(draws.from_seeds(model))
        if has_gpu() and wanted("attention"):  # cuDNN has this kernel, XLA has not
            laid.enter_context(attention.fused())
            if wanted("written"):
                laid.enter_context(written.fused())
        yield
