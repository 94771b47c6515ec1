"""Choose the rule (in flow_values.py or flow_shapes.py) for each TensorFlow operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import flow_shapes as shapes
from . import flow_values as values
from .flow import Flow, NotApart, Value

Rule = Callable[[Flow, Any, Sequence[Value]], Value | list[Value]]


def rule_of(op: Any) -> Rule:
    """The rule of an operation. Raises NotApart if there is none."""
    if op.type in values.ELEMENTWISE:
        return values.elementwise
    if op.type in values.REDUCED:
        return values.reduced
    if op.type in values.OF_EACH_IMAGE:
        return values.of_each_image
    if op.type in RULES:
        return RULES[op.type]
    raise NotApart(op.type)


RULES: dict[str, Rule] = (
    {name: values.argument for name in values.ARGUMENTS}
    | {name: values.along_last for name in values.ALONG_LAST}
    | {name: values.product for name in ("MatMul", "BatchMatMul", "BatchMatMulV2")}
    | {name: shapes.shape for name in ("Shape", "ShapeN", "Size")}
    | {name: values.entropy for name in ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")}
    | {name: values.along_axis for name in ("Cumsum", "Cumprod", "ReverseV2")}
    | {name: shapes.padded for name in ("Pad", "PadV2")}
    | {name: shapes.split for name in ("Split", "SplitV", "Unpack")}
    | {name: shapes.gathered for name in ("GatherV2", "Gather", "ResourceGather")}
    | {name: shapes.filled for name in ("Fill", "BroadcastTo", "RandomStandardNormal", "RandomUniform")}
    | {name: values.counts for name in ("Bincount", "DenseBincount")}
    | {
        "UnsortedSegmentSum": values.sums_of_segments,
        "Einsum": values.einsum,
        "Rank": shapes.rank,
        "StridedSlice": shapes.sliced,
        "Pack": shapes.packed,
        "ConcatV2": shapes.concatenated,
        "Reshape": shapes.reshaped,
        "ExpandDims": shapes.expanded,
        "Squeeze": shapes.squeezed,
        "Transpose": shapes.transposed,
        "GatherNd": shapes.gathered_by_several,
        "Where": shapes.where,
        "OneHot": values.one_hot,
        "Tile": shapes.tiled,
    }
)
