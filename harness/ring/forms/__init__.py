"""Parts of a Keras model in forms that XLA makes fewer and faster GPU kernels of; the same numbers up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..exchange import tf
from . import attention, layers


@contextmanager
def forms(model: Any) -> Iterator[None]:
    """While it lasts, the model is traced in these forms; the model itself is not changed."""
    if tf.config.get_visible_devices("GPU"):
        with layers.forms(model), attention.fused():
            yield
    else:  # the kernel is cuDNN's
        with layers.forms(model):
            yield
