"""Checks of a traced step before XLA compiles it: what XLA would compute otherwise, or compile again in every step."""

from __future__ import annotations

from typing import Any

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import hvd, tf

# These operations draw from the process's random generator, which ring seeds differently on each rank. XLA would use
# its own generator, which begins alike in every process.
DRAWS = (
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomGamma",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
)
# XLA needs the values of these inputs while it compiles: sizes, and places of slices. It takes what a variable holds at
# that time, and compiles again when the variable has changed.
WHILE_COMPILING = {
    "BatchToSpaceND": (1, 2),
    "BroadcastTo": (1,),
    "Conv2DBackpropInput": (0,),
    "DenseBincount": (1,),
    "Fill": (0,),
    "LinSpace": (2,),
    "MatrixDiagV3": (1, 2, 3),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "ResourceStridedSliceAssign": (1, 2, 3),
    "ScatterNd": (2,),
    "Slice": (1, 2),
    "SpaceToBatchND": (1, 2),
    "SplitV": (1,),
    "StatelessRandomNormalV2": (0,),
    "StatelessRandomUniformV2": (0,),
    "StridedSlice": (1, 2, 3),
    "TensorStridedSliceUpdate": (1, 2, 3),
    "Tile": (1,),
    "TopKV2": (1,),
    "UnsortedSegmentSum": (2,),
}
OF_SHAPES = ("Rank", "Shape", "ShapeN", "Size")  # XLA knows their results, whatever they are taken from
ASSIGN = ("AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp")


class DrawsAlike(RingscopeError):
    """Raised because a compiled step would draw equal noise on every rank."""


class CompiledAnew(RingscopeError):
    """Raised because XLA would compile a step again each time that it runs."""


def check(graph: Any) -> str:
    """Raise DrawsAlike or CompiledAnew for a traced step that XLA must not compile as it is. Returns the kind of an
    operation whose size or place depends on the batch's numbers, else ""."""
    if hvd.size() > 1:
        check_draws(graph)
    check_sizes(graph)
    return sized_by_batch(graph)


def check_draws(graph: Any) -> None:
    """Raise DrawsAlike for a step that draws by `tf.random`. A step may draw by `keras.random`, whose state is in
    variables."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    drawn = sorted({node.op for node in nodes} & set(DRAWS))
    if drawn:
        raise DrawsAlike(
            f"the step draws random numbers by tf.random ({', '.join(drawn)}), and XLA would draw the same ones on "
            "all ranks; use keras.random"
        )


def check_sizes(graph: Any) -> None:
    """Raise CompiledAnew for a step with sizes or places that depend on a variable which the step assigns, such as the
    state of Keras's random numbers."""
    assigned = {op.inputs[0].name for op in graph.get_operations() if op.type in ASSIGN}
    if found := _sized_by(graph, assigned):
        nodes = "\n".join(f"{{{{node {op.name}}}}}" for op in found)
        raise CompiledAnew(
            f"XLA would compile the step again each time: {found[0].type} takes a size or a place that the step draws "
            f"or changes; tf.slice of a fixed size, x[:, i] and tf.gather may take such places\n{nodes}"
        )


def sized_by_batch(graph: Any) -> str:
    """The kind of an operation whose size or place depends on what the traced function is given, else ""."""
    captured = {inner.name for _, inner in graph.captures}
    found = _sized_by(graph, {each.name for each in graph.inputs} - captured)
    return found[0].type if found else ""


def _sized_by(graph: Any, sources: set[str]) -> list[Any]:
    """The operations whose sizes or places depend on `sources`: names of tensors, and of variables' handles."""
    independent: set[str] = set()
    return [
        op
        for op in graph.get_operations()
        if op.type in WHILE_COMPILING
        and any(_depends(op.inputs[i], sources, independent) for i in WHILE_COMPILING[op.type] if i < len(op.inputs))
    ]


def _depends(tensor: Any, sources: set[str], independent: set[str]) -> bool:
    """independent: operations that depend on none of `sources`; this call adds to them."""
    seen: set[str] = set()
    waiting = [tensor]
    while waiting:
        each = waiting.pop()
        if each.name in sources:
            return True
        name, kind = each.op.name, each.op.type
        if name in independent or name in seen or kind in OF_SHAPES:
            continue
        seen.add(name)
        reads = kind == "ReadVariableOp"  # other operations that take a variable are not followed
        waiting.extend(given for given in each.op.inputs if reads or given.dtype != tf.resource)
    independent |= seen
    return False
