"""Give all operations one Python stack trace. TensorFlow records one for each operation, only for error messages.

A compiled step names no operation while it runs, and a step that XLA refuses is traced again without this form. The
step of an EfficientNetB4 has 28 000 operations, each some 60 calls deep: recording their stacks takes 1 to 3 s.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..internals.laid_over import laid_over


def of_one_stack() -> AbstractContextManager[None]:
    """Within this context, all operations get one stack trace, the one at its beginning."""
    from tensorflow.python.util import tf_stack

    now = tf_stack.extract_stack()
    return laid_over(tf_stack, extract_stack=lambda stacklevel=1: now)
