"""Record the sums and means that a function takes, in their order: in a trial graph, or while a step is traced."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import keras
import numpy as np
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics
from tensorflow.python.eager.backprop import GradientTape
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import gen_array_ops, gen_math_ops

from ..internals.frameworks import defining, tf
from ..internals.laid_over import laid_over, lifted
from . import totals
from .flow import NotApart

# Functions by which TensorFlow and Keras take sums and means, and find the number of rows.
SUMS = {
    (gen_math_ops, "_sum"): "Sum",
    (gen_math_ops, "mean"): "Mean",
    (gen_math_ops, "unsorted_segment_sum"): "UnsortedSegmentSum",
    (tf.math, "unsorted_segment_sum"): "UnsortedSegmentSum",
    (gen_array_ops, "size"): "Size",
    (gen_array_ops, "strided_slice"): "StridedSlice",
}
# Sums that are taken for gradients, for Keras's part of a loss, for metrics of `compile` and in layers are not counted,
# because their number depends on how these are traced.
NOT_COUNTED = (
    (GradientTape, "gradient"),
    (defining("compute_loss"), "compute_loss"),
    (CompileLoss, "__call__"),
    (CompileMetrics, "update_state"),
    (CompileMetrics, "result"),
    (keras.layers.Layer, "__call__"),
)
COMPARISONS = ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual")
NO_NUMBERS = (tf.string.as_datatype_enum, tf.bool.as_datatype_enum)
MANY = 8
FORMS = "ringscope.ring.forms"

_counting: list[list[bool]] = []  # one list for each active `each_sum`, which is paused while its list is not empty


class Sum(NamedTuple):
    """A sum that a function has taken. kind: the operation's type. turn: number of earlier sums of that kind. like:
    kind, type and number of axes of the result, to recognise the sum when the function is traced again."""

    kind: str
    turn: int
    like: str
    total: Any


class Taken(NamedTuple):
    """A function's trial graph. inputs: the placeholders that it was called with. of_all: results of `ring.sum`.
    of_layers: outputs of layers, and masks of the inputs, that have one row for each row of the batch."""

    graph: Any
    inputs: Any
    outputs: list[Any]
    sums: list[Sum]
    of_all: list[Any]
    of_layers: list[Any]


def taken(function: Callable[..., Any], given: Sequence[Any], *, open_batch: bool) -> Taken:
    """Trace the function in a graph that is never run, and record the sums that it takes. open_batch: trace with an
    unknown batch size, and without ring's forms of layers."""
    graph = FuncGraph("loss")

    def made(leaf: Any) -> Any:
        if not isinstance(leaf, tf.Tensor):
            return leaf
        if not leaf.shape.rank:
            raise NotApart("a value that belongs to no sample")
        own = tf.compat.v1.placeholder(leaf.dtype, [None if open_batch else leaf.shape[0], *leaf.shape[1:]])
        mask = get_keras_mask(leaf)
        if mask is not None:
            of_layers.append(made(mask))
            set_keras_mask(own, of_layers[-1])
        return own

    sums: list[Sum] = []
    of_layers: list[Any] = []

    def keep(found: Sum, values: Any) -> Any:
        sums.append(found)
        return found.total

    with tf.init_scope(), totals.looked_for() as of_all, graph.as_default(), ExitStack() as stack:
        if open_batch:
            stack.enter_context(lifted())
        stack.enter_context(_layers_kept(of_layers))
        stack.enter_context(each_sum(keep))
        stack.enter_context(tf.variable_creator_scope(_no_variable))
        inputs = tf.nest.map_structure(made, list(given))
        outputs = function(*inputs)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        return Taken(graph, inputs, [tf.convert_to_tensor(each) for each in outputs], sums, of_all, of_layers)


def compared_with(function: Callable[..., Any], given: Sequence[Any]) -> list[float] | None:
    """The constants that the function compares values with, such as a label that marks padding; loops included. None
    if no graph shows them: the function needs the tensors' values, or calls Python."""
    try:
        graph = taken(function, given, open_batch=False).graph.as_graph_def()
    except Exception:  # a user's function may raise any error
        return None
    found: set[float] = set()
    for nodes in (graph.node, *(each.node_def for each in graph.library.function)):
        known = {node.name: node for node in nodes}
        if any("PyFunc" in node.op for node in nodes):
            return None
        for node in nodes:
            for name in node.input if node.op in COMPARISONS else ():
                each = known.get(name.split(":")[0])
                while each is not None and each.op in ("Cast", "Identity"):
                    each = known.get(each.input[0].split(":")[0])
                if each is not None and each.op == "Const" and each.attr["dtype"].type not in NO_NUMBERS:
                    found |= set(np.ravel(tf.make_ndarray(each.attr["value"].tensor)).astype(float)[:MANY].tolist())
    return sorted(found)


def _no_variable(*_: Any, **__: Any) -> Any:
    raise NotApart("a function that creates variables, which would be lost with this trial graph")


def _layers_kept(found: list[Any]) -> AbstractContextManager[None]:
    """Within this context, keep each layer's outputs that have one row for each row of the batch. An output with
    more unknown dimensions than the inputs is left out, because its rows may be pairs of rows."""
    own = keras.layers.Layer.__call__

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        given = own(layer, *args, **kwargs)
        opens = any(None in shape[1:] for shape in _shapes((args, kwargs)))
        for tensor in tf.nest.flatten(given):
            if isinstance(tensor, tf.Tensor) and tensor.shape.rank:
                first, *others = tensor.shape
                if first is None and (opens or None not in others):
                    found.append(tensor)
        return given

    return laid_over(keras.layers.Layer, __call__=call)


def _shapes(given: Any) -> Iterator[list[int | None]]:
    for leaf in tf.nest.flatten(given):
        if isinstance(leaf, tf.Tensor) and leaf.shape.rank:
            yield list(leaf.shape)


@contextmanager
def each_sum(take: Callable[[Sum, Any], Any]) -> Iterator[None]:
    """Within this context, replace each sum by take(sum, the values that were summed). Sums in the functions of
    NOT_COUNTED and in ring's forms of layers are not replaced."""
    pausing: list[bool] = []
    turns = dict.fromkeys(SUMS.values(), 0)

    def counted(own: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            total = own(*args, **kwargs)
            if pausing or _within_forms():
                return total
            values = args[0] if args else kwargs.get("input", kwargs.get("data"))
            turn, turns[kind] = turns[kind], turns[kind] + 1
            pausing.append(True)
            try:
                return take(Sum(kind, turn, f"{kind} {total.dtype.name} {total.shape.rank}", total), values)
            finally:
                pausing.pop()

        return call

    def paused(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            pausing.append(True)
            try:
                return own(*args, **kwargs)
            finally:
                pausing.pop()

        return call

    with ExitStack() as stack:
        for kind, name in NOT_COUNTED:
            stack.enter_context(laid_over(kind, **{name: paused(getattr(kind, name))}))
        for (module, name), counts in SUMS.items():
            stack.enter_context(laid_over(module, **{name: counted(getattr(module, name), counts)}))
        _counting.append(pausing)
        stack.callback(_counting.pop)
        yield


@contextmanager
def uncounted() -> Iterator[None]:
    """Within this context, pause every active `each_sum`, because the sums taken here belong to another function."""
    paused = list(_counting)
    for pausing in paused:
        pausing.append(True)
    try:
        yield
    finally:
        for pausing in paused:
            pausing.pop()


def _within_forms() -> bool:
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(FORMS):
            return True
        frame = frame.f_back
    return False
