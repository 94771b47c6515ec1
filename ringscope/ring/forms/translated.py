"""Replace operations that TensorFlow is slow to translate for XLA by others that it translates fast, into an equal
program.

Each slow operation goes through compiler passes that are set up for it alone, which takes 3.5 to 5 ms of one core
before every first step, even if the compiled program is cached; the other operations take 0.04 ms. With gradients an
EfficientNetB4 has 320 sigmoids and square roots, a ResNet-50 has 100 relus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from .choice import wanted

COMPOSED = "_UnaryOpsComposition"  # a TensorFlow operation that can be any of UNARY; it does not accept bfloat16
UNARY = ("Abs", "Exp", "Log1p", "Reciprocal", "Rsqrt", "Sigmoid", "Sqrt", "Tanh")


@contextmanager
def at_once() -> Iterator[None]:
    """Within this context, slow operations are replaced in the current graph. Graphs of loops in it keep the slow
    operations, because TensorFlow looks up gradients by the kind of operation there. A gradient tape records the
    original operation."""
    from tensorflow.python.framework.func_graph import FuncGraph
    from tensorflow.python.ops import gen_nn_ops

    now = tf.compat.v1.get_default_graph()
    own, own_sums = FuncGraph._create_op_internal, gen_nn_ops.bias_add_grad

    def create(graph: Any, kind: str, inputs: Sequence[Any], *given: Any, **options: Any) -> Any:
        form = FORMS.get(kind)
        # Single numbers are not replaced, so that constants.py can compute them, and integers cannot be composed.
        if form is None or graph is not now or inputs[0].shape.num_elements() == 1 or not inputs[0].dtype.is_floating:
            return own(graph, kind, inputs, *given, **options)
        captured = [graph.capture(each) for each in inputs]
        name = options.get("name")

        def add(kind: str, *inputs: Any, last: bool = False, **attributes: Any) -> Any:
            named = {key: _attribute(value) for key, value in attributes.items()}
            return own(graph, kind, list(inputs), name=name if last else None, attrs=named)

        return _InPlaceOf(form(add, kind, *captured), captured)

    def sums(out_backprop: Any, data_format: str | bytes | None = "NHWC", name: str | None = None) -> Any:
        if data_format not in (None, "NHWC", b"NHWC") or out_backprop.shape.rank is None:
            return own_sums(out_backprop, data_format, name)
        return tf.reduce_sum(out_backprop, list(range(out_backprop.shape.rank - 1)), name=name)

    with laid_over(FuncGraph, _create_op_internal=create), laid_over(gen_nn_ops, bias_add_grad=sums):
        yield


def in_functions() -> AbstractContextManager[None]:
    """`at_once` for a function that is traced within a step in forms, unless the form is left out."""
    return at_once() if wanted("translated") else nullcontext()


class _InPlaceOf:
    """Stands for the new operation where TensorFlow asked for the original one. It shows the inputs of the original,
    from which a gradient tape computes the gradient."""

    def __init__(self, op: Any, inputs: Sequence[Any]) -> None:
        self._op, self.inputs = op, inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def _get_attr_type(self, name: str) -> Any:  # gradient tapes ask for the output's type, "T", alone
        return self.outputs[0].dtype


def _attribute(value: Any) -> Any:
    attribute = tf.compat.v1.AttrValue
    if isinstance(value, tf.DType):
        return attribute(type=value.as_datatype_enum)
    if isinstance(value, list):
        return attribute(list=attribute.ListValue(s=[each.encode() for each in value]))
    return attribute(s=value.encode())


Add = Callable[..., Any]
"""(kind, inputs, attributes) -> the new operation in the graph. last: True if it gets the original operation's name."""


def _composed(add: Add, kind: str, x: Any) -> Any:
    """An operation of UNARY as a composed operation; bfloat16 is computed in float32, as XLA does in any case."""
    settings = {"op_names": [kind], "_gradient_op_type": kind}
    if x.dtype != tf.bfloat16:
        return add(COMPOSED, x, T=x.dtype, last=True, **settings)
    wide = add("Cast", x, SrcT=tf.bfloat16, DstT=tf.float32).outputs[0]
    made = add(COMPOSED, wide, T=tf.float32, **settings).outputs[0]
    return add("Cast", made, SrcT=tf.float32, DstT=tf.bfloat16, last=True)


def _relu(add: Add, _: str, x: Any) -> Any:
    return add("Maximum", x, tf.zeros((), x.dtype), T=x.dtype, last=True)


def _relu_gradient(add: Add, _: str, upstream: Any, x: Any) -> Any:
    none = tf.zeros((), x.dtype)
    is_passed = add("Greater", x, none, T=x.dtype).outputs[0]
    return add("SelectV2", is_passed, upstream, none, T=x.dtype, last=True)


FORMS: dict[str, Callable[..., Any]] = dict.fromkeys(UNARY, _composed) | {"Relu": _relu, "ReluGrad": _relu_gradient}
