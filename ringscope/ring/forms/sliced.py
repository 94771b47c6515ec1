"""`tf.slice` at a place that is computed in the step, such as a random crop's.

XLA takes the place of TensorFlow's slice as a constant: if it depends on the state of Keras's random numbers, XLA
compiles the whole step again each time. XLA's own dynamic slice reads the place while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over


def anywhere() -> AbstractContextManager[None]:
    """Within this context, slices of a known size at an unknown place are traced as XLA's own. A place that is out of
    range, an error in TensorFlow, is moved into range."""
    from tensorflow.python.ops import gen_array_ops

    own = gen_array_ops._slice

    def cut(input: Any, begin: Any, size: Any, name: str | None = None) -> Any:
        places, size = (tf.convert_to_tensor(each) for each in (begin, size))
        sizes = tf.get_static_value(size)
        if tf.get_static_value(places) is not None or sizes is None or (sizes < 0).any():
            return own(input, places, size, name=name)
        return dynamic(tf.convert_to_tensor(input), places, sizes)

    return laid_over(gen_array_ops, _slice=cut)


def dynamic(tensor: Any, begin: Any, size: Any) -> Any:
    """The slice of the tensor at `begin`, (rank,), of `size`, (rank,) numbers."""
    from tensorflow.compiler.tf2xla.python import xla

    shape = tf.shape(tensor)

    @tf.custom_gradient
    def run(tensor: Any) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Any) -> Any:
            return xla.dynamic_update_slice(tf.zeros(shape, upstream.dtype), upstream, begin)

        return tf.ensure_shape(xla.dynamic_slice(tensor, begin, size), size), gradient

    return run(tensor)
