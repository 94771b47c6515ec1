"""A function as XLA compiles it while a form is laid over Keras or TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf


def compiled(form: Callable[[], AbstractContextManager[None]], function: Any, *given: Any) -> np.ndarray:
    """What `function` returns for `given`, traced within `form()` and compiled."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(*given: Any) -> Any:
        with form():
            return function(*given)

    return np.asarray(run(*given))
