"""Trace the tf.functions in a train step as parts of the step.

Otherwise each would have a graph of its own and keep it. Gradients caught in that graph could not be used outside, and
a graph that was traced before the model was distributed, or for another kind of step, would be used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import STAYS, laid_over


@contextmanager
def functions() -> Iterator[None]:
    """Within this context, a tf.function that is called in a graph adds its operations to that graph. Ring's own
    functions do not."""
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.eager.polymorphic_function import autograph_util
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    own = Function.__call__

    def call(function: Any, *given: Any, **options: Any) -> Any:
        if tf.executing_eagerly() or hasattr(function, "by_ring"):
            return own(function, *given, **options)
        if not function._autograph:
            return function.python_function(*given, **options)
        further = function._experimental_autograph_options
        python = autograph_util.py_func_from_autograph(function.python_function, further)
        # The step around it is traced without AutoGraph.
        with ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED, further):
            return python(*given, **options)

    with laid_over(Function, STAYS, __call__=call):
        yield
