"""Run those first layers of a model that XLA cannot compile before the compiled step, and the rest of the model in the
step.

Each step's function computes the outputs of these layers without XLA, in the training phase, and the compiled program
takes them in place of the model's inputs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from profiles.ground.errors import RingscopeError

from .. import say
from ..feed.carriers import AS_IT_IS, opened
from ..internals import seams
from ..internals.frameworks import hvd, tf
from ..internals.laid_over import STAYS, laid_over
from .variables import trains_as_keras

# `priced` times the TIMED steps that follow the first UNTIMED steps.
UNTIMED, TIMED = 10, 5


class NotBefore(RingscopeError):
    """Layers cannot run before the compiled step, because their outputs do not fit into the program."""

    def __init__(self, why: str) -> None:
        super().__init__(f"layers at the model's head cannot run before it: {why}")


class Head:
    """The layers of a model that run before its compiled step: none at first."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._nodes: list[Any] = []  # calls of operations, as the model's graph holds them
        self._before: set[int] = set()  # ids of the nodes that run before the step
        self._cut: list[Any] = []  # the symbolic tensors that the program takes in place of the model's inputs
        self._names: list[str] = []  # names of the layers that make these tensors
        self._alone: Any = None  # tf.function: the model's inputs of a batch -> the layers' outputs
        self._taken = 0  # steps that rank 0 has taken by a graph that was traced before
        self._steps_s: list[float] = []  # seconds of the steps that rank 0 has waited for
        self.why_not = ""
        """The reason why `takes` has last refused; empty if it did not refuse."""

    @property
    def layers(self) -> list[Any]:
        """The model's layers, with the layers in its parts; none if there is no model."""
        return [] if self._model is None else list(self._model._flatten_layers(include_self=False))

    @property
    def is_used(self) -> bool:
        """True if layers run before the step."""
        return bool(self._before)

    def takes(self, refused: Sequence[Any]) -> bool:
        """Let these layers run before the step from now on, with all layers of strings and all that lies before any of
        them. Returns False if they cannot, or if nothing changes."""
        self.why_not = ""
        known = self._model is not None and seams.has("layers run before the compiled step")
        if not known or not trains_as_keras(self._model):
            self.why_not = "the model is not made of layers alone, or has a train step of its own"
            return False
        self._nodes = [node for nodes in self._graph._nodes_by_depth.values() for node in nodes]
        maker = {id(tensor): node for node in self._nodes for tensor in node.outputs}
        before = self._before | {id(node) for node in self._nodes if _is_of(node, refused) or _takes_strings(node)}
        waiting = [node for node in self._nodes if id(node) in before]
        while waiting:
            for tensor in waiting.pop().input_tensors:
                node = maker[id(tensor)]
                if id(node) not in before and not node.is_input:
                    before.add(id(node))
                    waiting.append(node)
        if before == self._before:
            return False
        first, rest = self._divided(before)
        self.why_not = _obstacle([node.operation for node in first], [node.operation for node in rest])
        if self.why_not:
            return False
        self._before = before
        made = {id(tensor) for node in rest for tensor in node.outputs}
        taken = [tensor for node in rest for tensor in node.input_tensors] + list(self._graph.outputs)
        self._cut = list({id(tensor): tensor for tensor in taken if id(tensor) not in made}.values())
        self._names = [maker[id(tensor)].operation.name for tensor in self._cut]
        return True

    def tell(self) -> None:
        """Print a line on the layers that run before the step, if there are any."""
        layers = {id(node.operation): node.operation for node in self._divided(self._before)[0]}.values()
        named = ", ".join(f"{layer.name} ({type(layer).__name__})" for layer in layers)
        if named:
            say.once(
                f"XLA compiles the step without the model's first layers {named}: they run before it, operation by "
                "operation, and the step waits for them; in the data set's map() they would run while the GPU trains"
            )

    @contextmanager
    def before(self, data: Any, kinds: tuple[str, ...] | None) -> Iterator[tuple[Any, tuple[str, ...] | None]]:
        """Run the layers on a batch, in the graph that is being traced. Returns the batch and the kinds of its leaves
        (`feed`) for the program: within this context the model takes the layers' outputs in place of its inputs.

        Raises NotBefore if XLA cannot take one of these outputs.
        """
        if not self.is_used:
            yield data, kinds
            return
        x, *others = data if isinstance(data, (tuple, list)) else (data,)
        if any(getattr(leaf, "dtype", None) == tf.string for leaf in tf.nest.flatten(others)):
            raise NotBefore("labels or weights are strings")
        leaves = len(tf.nest.flatten(x))
        self._alone = tf.function(lambda given: self._outputs(given, kinds), autograph=False)
        outputs = self._alone(x)
        graph, (_, rest) = self._graph, self._divided(self._before)
        taken = {"_inputs": self._cut, "_inputs_struct": self._cut, "_nodes_by_depth": _by_depth(graph, rest)}
        # both models would cast these inputs, a Sequential to the type of its policy
        as_they_are = laid_over(self._model, STAYS, _convert_input_args=False)
        with as_they_are, laid_over(graph, STAYS, _standardize_inputs=tf.nest.flatten, **taken):
            yield (outputs, *others), kinds and (*[AS_IT_IS] * len(outputs), *kinds[leaves:])

    @contextmanager
    def undone(self, *, always: bool = False) -> Iterator[None]:
        """Undo what the layers have assigned, for example to the states of random numbers, if an error is raised.
        always: also if none is raised."""
        first, _ = self._divided(self._before)
        kept = [(v, tf.identity(v.value)) for v in _variables([node.operation for node in first])]
        succeeded = False
        try:
            yield
            succeeded = True
        finally:
            if always or not succeeded:
                for variable, value in kept:
                    variable.assign(value)

    def priced(self, take: Callable[[], Any], data: Any) -> Any:
        """Take a compiled step and return its logs. Rank 0 waits for the ends of the 11th to 15th step, then runs the
        layers alone on the batch `data`, and prints once how long both take."""
        if not self.is_used or hvd.rank() > 0 or len(self._steps_s) == TIMED:
            return take()
        self._taken += 1
        if self._taken < UNTIMED:
            return take()
        logs, step_s = _timed(take)
        self._steps_s.append(step_s)
        if len(self._steps_s) == TIMED:
            x = data[0] if isinstance(data, (tuple, list)) else data
            with self.undone(always=True):
                layers_s = statistics.median(_timed(lambda: self._alone(x))[1] for _ in range(TIMED))
            say.line(
                f"the model's first layers, which run before the compiled step, take {1e3 * layers_s:.1f} ms alone, "
                f"and a step with them {1e3 * statistics.median(self._steps_s):.1f} ms"
            )
        return logs

    @property
    def _graph(self) -> Any:
        return getattr(self._model, "_functional", None) or self._model

    def _divided(self, before: set[int]) -> tuple[list[Any], list[Any]]:
        """The nodes before the step, and the nodes in it."""
        called = [node for node in self._nodes if not node.is_input]
        return [n for n in called if id(n) in before], [n for n in called if id(n) not in before]

    def _outputs(self, x: Any, kinds: tuple[str, ...] | None) -> list[Any]:
        """The layers' outputs for the model's inputs, in the graph that is being traced. kinds: of the batch's
        leaves, of which the inputs are the first."""
        x = opened(x, kinds and kinds[: len(tf.nest.flatten(x))])
        graph, (first, _) = self._graph, self._divided(self._before)
        with laid_over(
            graph, STAYS, _outputs=self._cut, _outputs_struct=self._cut, _nodes_by_depth=_by_depth(graph, first)
        ):
            found = tf.nest.flatten(self._model(x, training=True))
        if any(layer._get_own_losses() for layer in self.layers):
            raise NotBefore("they add losses")
        size = next(leaf.shape[0] for leaf in tf.nest.flatten(x) if leaf is not None)
        return [_checked(*each, size) for each in zip(found, self._cut, self._names, strict=True)]


def _timed(take: Callable[[], Any]) -> tuple[Any, float]:
    """The result of `take`, and the seconds until the devices have done its work."""
    tf.test.experimental.sync_devices()
    began_s = time.perf_counter()
    found = take()
    tf.test.experimental.sync_devices()
    return found, time.perf_counter() - began_s


def _checked(value: Any, symbol: Any, named: str, size: int) -> Any:
    """The value with its shape fully known. symbol: the symbolic tensor that stands for it. named: of the layer that
    makes it. size: of the batch."""
    from keras.src.backend.common.masking import get_keras_mask

    if not isinstance(value, tf.Tensor) or value.dtype == tf.string:
        raise NotBefore(f"{named} gives a ragged or sparse tensor, or strings")
    if get_keras_mask(value) is not None:
        raise NotBefore(f"{named} gives a mask")
    if value.shape.rank != len(symbol.shape) or value.shape.rank == 0:
        raise NotBefore(f"{named} gives another number of axes than it says")
    shape = [size, *value.shape[1:]]
    if None in shape:
        raise NotBefore(f"the shape of what {named} gives can differ from batch to batch")
    return tf.ensure_shape(value, shape)


def _obstacle(first: Sequence[Any], rest: Sequence[Any]) -> str:
    """The reason why these operations cannot run before the rest; empty if there is none."""
    for operation in first:
        if getattr(operation, "trainable_variables", ()):
            return f"{operation.name}, which is or precedes such a layer, has weights that are trained"
    shared = {id(v) for v in _variables(first)} & {id(v) for v in _variables(rest)}
    if shared:
        return "they share variables with layers after them"
    return ""


def _variables(operations: Sequence[Any]) -> list[Any]:
    found = [v for operation in operations for v in getattr(operation, "variables", ())]
    return list({id(v): v for v in found}.values())


def _is_of(node: Any, layers: Sequence[Any]) -> bool:
    """True if the node calls one of these layers, or a model that contains one of them."""
    parts = node.operation._flatten_layers() if hasattr(node.operation, "_flatten_layers") else [node.operation]
    return not node.is_input and any(part is layer for part in parts for layer in layers)


def _takes_strings(node: Any) -> bool:
    return any(tensor.dtype == "string" for tensor in node.input_tensors)


def _by_depth(graph: Any, nodes: Sequence[Any]) -> dict[int, list[Any]]:
    wanted = set(map(id, nodes))
    return {depth: [n for n in every if id(n) in wanted] for depth, every in graph._nodes_by_depth.items()}
