"""Evaluate tensors that a graph computes from constants alone, such as attention masks, before the step is compiled.

A tensor that was made before the graph was traced, such as a mask that a layer keeps, is a constant, too.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ..internals.frameworks import tf

MOST = 1 << 24  # elements; larger tensors are not evaluated
MADE = "_ringscope_constants"  # attribute of a graph: arrays with their tensors
# Operands and settings to which TensorFlow's Python functions give other names
OPERANDS = {"reduction_indices": "axis", "dim": "axis"}
SETTINGS = {"axis": "squeeze_dims"}
# Operations that are evaluated here, beside those that `tf.get_static_value` knows, and Pack, whose operands are a list
KINDS = (
    *("AddV2", "Sub", "Mul", "RealDiv", "Pow", "Sqrt", "Rsqrt", "Neg", "Cast", "Identity"),
    *("OnesLike", "ZerosLike", "Range", "Fill", "Cumsum", "BroadcastTo", "MatrixBandPart"),
    *("Abs", "Sign", "Maximum", "Minimum", "Exp", "Log", "FloorDiv", "FloorMod"),
    *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"),
    *("LogicalNot", "LogicalAnd", "LogicalOr", "SelectV2", "Any", "Max"),
    *("ExpandDims", "Reshape", "Squeeze", "StridedSlice", "Tile", "Transpose"),
)


def value(tensor: Any, known: dict[str, Any] | None = None) -> np.ndarray | None:
    """The tensor's value if it is computed from constants alone, by `KINDS`; else None. known: values by name, found
    before."""
    if not hasattr(tensor, "graph"):
        return np.asarray(tensor)
    known = {} if known is None else known
    if tensor.name not in known:
        known[tensor.name] = _computed(tensor, known)
    found: np.ndarray | None = known[tensor.name]
    return found


def _computed(tensor: Any, known: dict[str, Any]) -> np.ndarray | None:
    elements = tensor.shape.num_elements()
    if elements is None or elements > MOST:
        return None
    if (found := tf.get_static_value(tensor)) is not None:
        return np.asarray(found)
    op = tensor.op
    if op.type == "Placeholder":
        return _made_before(tensor)
    if op.type not in (*KINDS, "Pack"):
        return None
    given = [found for each in op.inputs if (found := value(each, known)) is not None]
    if len(given) < len(op.inputs):
        return None
    if op.type == "Pack":
        return np.stack(given, op.get_attr("axis"))
    kernel = getattr(tf.raw_ops, op.type)
    names = [OPERANDS.get(each.name, each.name) for each in op.op_def.input_arg]
    named = dict(zip(names, given, strict=True))
    options = [name for name in inspect.signature(kernel).parameters if name not in (*named, "name")]
    settings = {name: op.get_attr(SETTINGS.get(name, name)) for name in options}
    with tf.init_scope(), tf.device("CPU:0"):
        made: np.ndarray = kernel(**named, **settings).numpy()
    return made


def number(tensor: Any) -> float | None:
    """The tensor's value, if it is one number that the graph holds or computes from constants; else None."""
    found = value(tensor) if tensor.shape.num_elements() == 1 else None
    return None if found is None else float(np.reshape(found, ()))


def is_fixed(tensor: Any, most: int = 64) -> bool:
    """True if no gradient flows through the tensor, unlike a learned table of biases: it is computed from constants and
    integers by at most `most` operations."""
    waiting, seen = [tensor], set()
    while waiting:
        each = waiting.pop()
        if not each.dtype.is_floating or each.name in seen or each.op.type in ("Const", "StopGradient"):
            continue
        if each.op.type == "Placeholder" and value(each) is not None:
            continue
        if not each.op.inputs or not all(given.dtype != tf.resource for given in each.op.inputs):
            return False
        seen.add(each.name)
        if len(seen) > most:
            return False
        waiting += each.op.inputs
    return True


def folded(tensor: Any) -> Any:
    """The tensor as `shared` makes it, if the graph computes it from constants alone; else unchanged."""
    found = value(tensor) if hasattr(tensor, "graph") else None
    return tensor if found is None else shared(found)


def shared(array: np.ndarray) -> Any:
    """The array as a tensor of the current graph. Arrays of equal bits are one tensor, so that a program holds an
    attention bias of many layers once. It is an operation on a constant: TensorFlow writes a constant anew for each
    use."""
    graph = tf.compat.v1.get_default_graph()
    known: list[tuple[np.ndarray, Any]] = getattr(graph, MADE, [])
    for other, made in known:
        if (other.dtype, other.shape) == (array.dtype, array.shape) and other.tobytes() == array.tobytes():
            return made
    made = tf.reshape(tf.constant(array.ravel()), array.shape)
    setattr(graph, MADE, [*known, (array, made)])
    return made


def _made_before(tensor: Any) -> np.ndarray | None:
    """The value of a tensor that the graph has captured: it is the same in each step. A function's argument has
    none."""
    outside = [given for given, inside in getattr(tensor.graph, "captures", ()) if inside is tensor]
    return value(outside[0]) if outside and tensor.dtype != tf.resource else None


def is_lower_triangle(mask: Any) -> bool:
    """True if the mask is known to be causal for every sample and head: each query may see the keys up to its own
    position."""
    if mask.shape.rank < 2 or mask.shape[-2] != mask.shape[-1]:
        return False
    found = value(mask)
    return found is not None and bool((found.astype(bool) == np.tri(mask.shape[-1]).astype(bool)).all())


def hides_later(mask: Any) -> bool:
    """True if the mask is known to let no query see a key after its own position, whatever else it hides: it is such a
    constant, or is made from such a mask by `and`, `minimum`, a product or a comparison with 0 or more. Numbers of a
    mask count as 0 and 1."""
    if mask.shape.rank is None or mask.shape.rank < 2:
        return False
    found = value(mask)
    if found is not None:
        return not np.triu(found.astype(bool), 1).any()
    if not hasattr(mask, "op"):
        return False
    kind, inputs = mask.op.type, list(mask.op.inputs)
    if kind == "StridedSlice" and not _keeps_order(inputs[3]):
        return False
    if kind == "Greater":
        limit = value(inputs[1])
        if limit is None or (limit < 0).any():
            return False
    if kind in ("ExpandDims", "Reshape", "Identity", "Cast", "StridedSlice", "Greater"):
        inputs = inputs[:1]
    elif kind not in ("LogicalAnd", "Minimum", "Mul"):
        return False
    return any(each.shape[-2:] == mask.shape[-2:] and hides_later(each) for each in inputs)


def _keeps_order(strides: Any) -> bool:
    found = value(strides)
    return found is not None and bool((found == 1).all())
