"""Checks of a traced step before XLA compiles it: what XLA would compute otherwise, or compile again in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profiles.ground.errors import RingscopeError

from ..internals import seams
from ..internals.frameworks import hvd

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
    "ListDiff": (0, 1),
    "MatrixDiagPartV3": (1,),
    "MatrixDiagV3": (1, 2, 3),
    "MatrixSetDiagV3": (2,),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "ResourceStridedSliceAssign": (1, 2, 3),
    "ReverseV2": (1,),
    "Roll": (2,),
    "ScatterNd": (2,),
    "Slice": (1, 2),
    "SpaceToBatchND": (1, 2),
    "SplitV": (1,),
    "StatelessMultinomial": (1,),
    "StatelessRandomNormalV2": (0,),
    "StatelessRandomUniformIntV2": (0,),
    "StatelessRandomUniformV2": (0,),
    "StatelessTruncatedNormalV2": (0,),
    "StridedSlice": (1, 2, 3),
    "TensorListReserve": (1,),
    "TensorStridedSliceUpdate": (1, 2, 3),
    "Tile": (1,),
    "TopKV2": (1,),
    "Transpose": (1,),
    "UnsortedSegmentMax": (2,),
    "UnsortedSegmentMin": (2,),
    "UnsortedSegmentProd": (2,),
    "UnsortedSegmentSum": (2,),
}
# XLA knows their results, whatever they are taken from.
OF_SHAPES = ("Rank", "Shape", "ShapeN", "Size", "TensorListLength", "VariableShape")
ASSIGN = ("Assign", "ResourceScatter", "ResourceStridedSliceAssign")  # beginnings of the names of operations
# Operations that run other graphs, with the number of their inputs that these graphs do not take: branches, loops,
# functions.
RUN_GRAPHS = {"Case": 1, "If": 1, "PartitionedCall": 0, "While": 0}
WITHIN = "a check of sizes within branches and loops"
_Key = tuple[int, str]
"""A graph's identity, and the name of a tensor or an operation in it."""


class DrawsAlike(RingscopeError):
    """Raised because a compiled step would draw equal noise on every rank."""


class CompiledAnew(RingscopeError):
    """Raised because XLA would compile a step again each time that it runs."""


def check(graph: Any) -> str:
    """Raise DrawsAlike or CompiledAnew for a traced step that XLA must not compile as it is. Returns the kind of an
    operation whose size or place depends on the batch's numbers, else ""."""
    if hvd.size() > 1:
        check_draws(graph)
    return check_sizes(graph)


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


def check_sizes(graph: Any) -> str:
    """Raise CompiledAnew for a step with sizes or places that depend on a variable which the step assigns, such as the
    state of Keras's random numbers. Returns the kind of an operation whose size or place depends on what the traced
    function is given, else ""."""
    whole = _Whole(graph)
    assigned = {key for op in whole.operations if op.type.startswith(ASSIGN) for key in whole.outermost(op.inputs[0])}
    if found := whole.sized_by(assigned):
        nodes = "\n".join(f"{{{{node {op.name}}}}}" for op in found)
        raise CompiledAnew(
            f"XLA would compile the step again each time: {found[0].type} takes a size or a place that the step draws "
            "or changes; tf.slice of a fixed size, x[:, i], tf.gather and ops.slice_update may take such places\n"
            f"{nodes}"
        )
    captured = {inner.name for _, inner in graph.captures}
    found = whole.sized_by({_key(each) for each in graph.inputs if each.name not in captured})
    return found[0].type if found else ""


class _Whole:
    """A graph, together with the graphs of its branches, loops and functions."""

    def __init__(self, graph: Any) -> None:
        self.operations: list[Any] = []
        self._given: dict[_Key, list[Any]] = {}  # the inputs of inner graphs, with the tensors that they are given
        self._add(graph, set())

    def _add(self, graph: Any, known: set[int]) -> None:
        known.add(id(graph))
        for op in graph.get_operations():
            self.operations.append(op)
            for inner, inputs in _run_by(op):
                for its_own, given in inputs:
                    self._given.setdefault(_key(its_own), []).append(given)
                if id(inner) not in known:
                    self._add(inner, known)

    def outermost(self, tensor: Any) -> Iterator[_Key]:
        """The keys of the tensors in the outermost graph that an inner graph is given as `tensor`."""
        if _key(tensor) not in self._given:
            yield _key(tensor)
        for given in self._given.get(_key(tensor), ()):
            yield from self.outermost(given)

    def sized_by(self, sources: set[_Key]) -> list[Any]:
        """The operations whose sizes or places depend on `sources`: tensors, and variables' handles."""
        independent: set[_Key] = set()
        return [
            op
            for op in self.operations
            if op.type in WHILE_COMPILING
            and any(
                self._depends(op.inputs[i], sources, independent)
                for i in WHILE_COMPILING[op.type]
                if i < len(op.inputs)
            )
        ]

    def _depends(self, tensor: Any, sources: set[_Key], independent: set[_Key]) -> bool:
        """independent: operations that depend on none of `sources`; this call adds to them."""
        seen: set[_Key] = set()
        waiting = [tensor]
        while waiting:
            each = waiting.pop()
            if _key(each) in sources:
                return True
            key = id(each.graph), each.op.name
            if key in independent or key in seen or each.op.type in OF_SHAPES:
                continue
            seen.add(key)
            waiting += [*each.op.inputs, *self._given.get(_key(each), ())]
        independent |= seen
        return False


def _key(tensor: Any) -> _Key:
    return id(tensor.graph), tensor.name


def _origin(tensor: Any) -> Any:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _run_by(op: Any) -> Iterator[tuple[Any, list[tuple[Any, Any]]]]:
    """Yield the graphs that an operation runs, each with its inputs and what they are given. A number that a loop
    changes is left out: XLA does not take it for known."""
    kind = op.type.removeprefix("Stateful").removeprefix("Stateless")
    if kind not in RUN_GRAPHS or not seams.has(WITHIN):
        return
    values = op.node_def.attr.values()
    names = [each.name for value in values for each in ([value.func] if value.HasField("func") else value.list.func)]
    functions = {name: op.graph._get_function(name) for name in names}
    # TensorFlow 1's functions, as in Keras's CTC, have no graph.
    graphs = {name: function.graph for name, function in functions.items() if hasattr(function, "graph")}
    inputs = op.inputs[RUN_GRAPHS[kind] :]
    stays = [True] * len(inputs)
    if kind == "While" and (body := graphs.get(op.get_attr("body").name)):
        stays = [_origin(made) is its_own for its_own, made in zip(body.inputs, body.outputs, strict=True)]
    for graph in graphs.values():
        yield graph, [(own, given) for own, given, keeps in zip(graph.inputs, inputs, stays, strict=True) if keeps]
