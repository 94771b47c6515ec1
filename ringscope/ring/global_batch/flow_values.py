"""Rules for operations on values of rows and on sums over rows: the kind of value (flow.py) that each gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .flow import (
    MEAN,
    SUM,
    Fixed,
    Flow,
    Joint,
    NotApart,
    Own,
    Places,
    Rows,
    Sizes,
    Value,
    learnt,
    only_rows,
    rank_of,
    rows_of,
    static,
)

# fmt: off
ELEMENTWISE = frozenset((
    "Abs", "Acos", "Acosh", "Add", "AddN", "AddV2", "ApproximateEqual", "Asin", "Asinh", "Atan", "Atan2",
    "Atanh", "BiasAdd", "Cast", "Ceil", "CheckNumerics", "ClipByValue", "Cos", "Cosh", "Digamma", "Div",
    "DivNoNan", "Elu", "EluGrad", "EnsureShape", "Equal", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor",
    "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Identity", "Inv", "IsFinite", "IsInf", "IsNan",
    "LeakyRelu", "LeakyReluGrad", "Less", "LessEqual", "Lgamma", "Log", "Log1p", "LogicalAnd", "LogicalNot",
    "LogicalOr", "Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "Ndtri", "Neg", "NextAfter", "NotEqual",
    "OnesLike", "Pow", "PreventGradient", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu", "Relu6",
    "Relu6Grad", "ReluGrad", "Rint", "Round", "Rsqrt", "RsqrtGrad", "Select", "SelectV2", "Selu", "SeluGrad",
    "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Sinh", "Snapshot", "Softplus", "SoftplusGrad", "Softsign",
    "SoftsignGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "StopGradient", "Sub", "Tan", "Tanh",
    "TanhGrad", "TruncateDiv", "TruncateMod", "Xdivy", "Xlog1py", "Xlogy", "ZerosLike", "Zeta", "_UnaryOpsComposition",
))
# fmt: on
SAME = frozenset(
    ("Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape", "Cast", "Neg")
)
SUMS = ("AddV2", "Add", "Sub", "AddN")
QUOTIENTS = ("RealDiv", "DivNoNan", "Div", "Xdivy")
REDUCED = ("Sum", "Mean", "Max", "Min", "Prod", "Any", "All", "EuclideanNorm")
ARGUMENTS = ("ArgMax", "ArgMin")
ALONG_LAST = ("Softmax", "LogSoftmax", "TopKV2", "TopK", "InTopKV2", "L2Loss")
# fmt: off
OF_EACH_IMAGE = frozenset((
    "AvgPool", "AvgPool3D", "Conv2D", "Conv3D", "Conv", "DepthwiseConv2dNative", "ExtractImagePatches",
    "MaxPool", "MaxPool3D", "MirrorPad", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor", "LRN",
    "DepthToSpace", "SpaceToDepth",
))
# fmt: on


def elementwise(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    if any(isinstance(value, Places) for value in given):
        if op.type in SAME:
            return Places()
        raise NotApart(f"{op.type} of places")
    if any(isinstance(value, Sizes) for value in given):
        if op.type in SAME:
            return given[0]
        raise NotApart(f"{op.type} of shapes")
    return _of_rows(flow, op, given) if any(isinstance(value, Rows) for value in given) else of_numbers(flow, op, given)


def _of_rows(flow: Flow, op: Any, given: Sequence[Value]) -> Rows:
    found = [(tensor, value) for tensor, value in zip(op.inputs, given, strict=True) if isinstance(value, Rows)]
    # the axis counted from the right, as in broadcasting
    places = {rank_of(tensor) - value.axis for tensor, value in found}
    if len(places) > 1:
        raise NotApart("each sample is combined with every other sample of the batch")
    (place,) = places
    scaled = 0
    for i, (tensor, value) in enumerate(zip(op.inputs, given, strict=True)):
        if isinstance(value, Rows):
            continue
        if rank_of(tensor) >= place and tensor.shape[-place] != 1:
            raise NotApart("a constant with one value for each sample")
        if isinstance(value, Own) and value.degree == 0 and (op.type == "Mul" or (op.type in QUOTIENTS and i == 1)):
            scaled += value.power if op.type == "Mul" else -value.power
        elif isinstance(value, (Own, Joint)) and flow.joint(value).learnt:
            raise NotApart("samples divided by a sum over the batch that has a gradient of its own")
    powers = [value.power for _, value in found]
    if any(powers):
        if op.type in ("Mul", *QUOTIENTS) and len(found) > 1:
            raise NotApart("a product of values that are already divided by the batch size")
        linear = op.type in (*SAME, "Mul", *SUMS) or (op.type in QUOTIENTS and isinstance(given[0], Rows))
        if not linear or (op.type in SUMS and len(found) < len(given)):
            raise NotApart(f"{op.type} of values that are already divided by the batch size")
    result = rows_of(flow, op, given, rank_of(op.outputs[0]) - place)
    return result._replace(power=result.power + scaled)


def of_numbers(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    owns = [value for value in given if isinstance(value, Own)]
    together = frozenset().union(*(value.cuts for value in owns))
    kinds = [(value.degree, value.power) if isinstance(value, Own) else None for value in given]

    def own(degree: int, power: int) -> Value:
        return Own(degree, power, together, learnt(op, given))

    if not any(isinstance(value, Joint) for value in given):
        if op.type in SAME:
            return own(*kinds[0]) if kinds[0] else given[0]
        if op.type in SUMS:
            # A mean plus a constant is still a mean over rows. A sum plus a constant is neither a mean nor a sum.
            known = {kind or MEAN for kind in kinds}
            if len(known) == 1:
                return own(*known.pop())
        if op.type == "Mul" or (op.type in QUOTIENTS and kinds[1] in (None, (0, kinds[1] and kinds[1][1]))):
            one, other = (kind or (0, 0) for kind in kinds)
            sign = 1 if op.type == "Mul" else -1
            degree, power = one[0] + other[0], one[1] + sign * other[1]
            if degree == 0 and power == 0:
                return Fixed()
            if degree <= 1:
                return own(degree, power)
    for value in owns:
        flow.joint(value)
    return Joint(learnt(op, given))


def _axes(op: Any) -> tuple[set[int], bool]:
    """(the reduced axes, True if they are kept with length 1)."""
    rank = rank_of(op.inputs[0])
    axes = [int(axis) % rank for axis in static(op.inputs[1]).reshape(-1)] if rank else []
    return set(axes), bool(op.get_attr("keep_dims"))


def reduced(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    value, (result,) = given[0], op.outputs
    if isinstance(value, Sizes):
        if op.type != "Prod":
            raise NotApart(f"{op.type} of a shape")
        known = [each for each in value.of if each is not None]
        return flow.own(result, (sum(d for d, _ in known), sum(p for _, p in known)))
    if isinstance(value, Own):
        if op.type in ("Sum", "Mean"):
            return value._replace(learnt=learnt(op, given))
        return flow.joint(value)
    if not isinstance(value, Rows):
        raise NotApart(f"{op.type} of {type(value).__name__}")
    axes, kept = _axes(op)
    if value.axis not in axes:
        if value.power and op.type not in ("Sum", "Mean"):
            raise NotApart(f"{op.type} of values that are already divided by the batch size")
        return rows_of(flow, op, given, value.axis - (0 if kept else sum(axis < value.axis for axis in axes)))
    if op.type == "Sum":
        return flow.own(result, (1, value.power), value)
    if op.type != "Mean":
        raise NotApart(f"{op.type} over the batch")
    if value.power:
        raise NotApart("a mean of values that are already divided by the batch size")
    own = flow.own(result, MEAN, value)
    # Once rows are masked out, ranks keep different numbers of rows, so the mean of their means is not the joined mean.
    return own if value.whole else flow.joint(own)


def argument(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    ((tensor, value),) = only_rows(op, given)
    axis = int(static(op.inputs[1])) % rank_of(tensor)
    if axis == value.axis:
        raise NotApart(f"{op.type} over the batch")
    return rows_of(flow, op, given, value.axis - (axis < value.axis), learnt=False)


def sums_of_segments(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    ((_, data), (_, ids)) = only_rows(op, given)
    if data.axis or ids.axis:
        raise NotApart("segments along another axis than the samples")
    return flow.own(op.outputs[0], (1, data.power), data)


def counts(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    return flow.own(op.outputs[0], SUM, only_rows(op, given)[0][1])


def product(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    """The rule for MatMul, also for batches of matrices."""
    found = only_rows(op, given)
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    turned = [op.get_attr(name) for name in names]
    ranks = [rank_of(tensor) for tensor in op.inputs]
    contracted = [ranks[0] - (2 if turned[0] else 1), ranks[1] - (1 if turned[1] else 2)]
    axes = [value.axis if isinstance(value, Rows) else None for value in given]
    if len(found) == 2 and axes == contracted:
        return flow.own(op.outputs[0], SUM, rows_of(flow, op, given, 0))
    if any(axis == contracted[i] for i, axis in enumerate(axes)):
        raise NotApart("a matrix product that sums constants over the batch")
    rank = rank_of(op.outputs[0])
    results = set()
    for i, axis in enumerate(axes):
        if axis is None:
            if max(ranks) > 2 and ranks[i] > 2 and any(size != 1 for size in op.inputs[i].shape[:-2]):
                raise NotApart("a constant matrix for each sample")
            continue
        free = ranks[i] - (1 if i else 2) if not turned[i] else ranks[i] - (2 if i else 1)
        results.add((rank - 2 if i == 0 else rank - 1) if axis == free else axis + rank - ranks[i])
    if len(results) > 1:
        raise NotApart("products of each sample with every other: pairs of samples")
    return rows_of(flow, op, given, results.pop())


def einsum(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    found = only_rows(op, given)
    equation = op.get_attr("equation").decode()
    if "." in equation:
        raise NotApart("an einsum with an ellipsis")
    terms, result = equation.split("->")
    letters = {term[value.axis] for term, value in zip(terms.split(","), given, strict=True) if isinstance(value, Rows)}
    if len(letters) > 1 or any(
        letters & set(term) for term, value in zip(terms.split(","), given, strict=True) if not isinstance(value, Rows)
    ):
        raise NotApart("products of each sample with every other: pairs of samples")
    (letter,) = letters
    if any(value.power for _, value in found):
        raise NotApart("products of values that are already divided by the batch size")
    if letter in result:
        return rows_of(flow, op, given, result.index(letter))
    return flow.own(op.outputs[0], SUM, rows_of(flow, op, given, 0))


def one_hot(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    rows = only_rows(op, given)
    if not isinstance(given[0], Rows) or len(rows) > 1:
        raise NotApart("OneHot")
    axis = op.get_attr("axis") % rank_of(op.outputs[0])
    return rows_of(flow, op, given, given[0].axis + (axis <= given[0].axis))


def along_last(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    found = only_rows(op, given)
    tensor, rows = found[0]
    if rows.power or rows.axis == rank_of(tensor) - 1 or op.type == "L2Loss":
        raise NotApart(f"{op.type} over the batch")
    return rows_of(flow, op, given, rows.axis)


def entropy(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    if any(value.axis or value.power for _, value in only_rows(op, given, others=False)):
        raise NotApart(f"{op.type} over the batch")
    return rows_of(flow, op, given, 0)


def along_axis(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    """The rule for Cumsum, Cumprod and ReverseV2 along other axes than the rows'."""
    ((tensor, rows),) = only_rows(op, given)
    axes = [int(axis) % rank_of(tensor) for axis in static(op.inputs[1]).reshape(-1)]
    if rows.axis in axes or rows.power:
        raise NotApart(f"{op.type} over the batch")
    return rows_of(flow, op, given, rows.axis)


def of_each_image(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    found = only_rows(op, given)
    if len(found) != 1 or found[0][1].axis or found[0][1].power or not isinstance(given[0], Rows):
        raise NotApart(op.type)
    return rows_of(flow, op, given, 0)
