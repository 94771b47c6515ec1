"""Follow the rows (samples) of a batch through a graph: which tensors hold values per row, sums over rows, or neither.

Each tensor between the batch and the loss gets one of the kinds below (Fixed, Rows, Own, ...). A rank may add and scale
sums over its own rows, and numbers of rows: the averaged gradients still equal the joined batch's gradient. Before a
sum is divided by another sum, or used in any other way, it must cover all ranks. `Flow.cuts` lists these sums. An
operation without a rule raises NotApart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..internals.frameworks import tf


class NotApart(Exception):
    """The graph does not show how the loss depends on the rows of the batch."""


class Fixed(NamedTuple):
    """A value that does not depend on the batch. learnt: True if a gradient flows through it."""

    learnt: bool = False


class Rows(NamedTuple):
    """A tensor that holds one or more values for each row of the batch.

    axis: the axis along which the rows lie. each: entries along that axis per row of the batch; None: unknown, but
    equal for all rows; 0: the entries of a row are not adjacent. whole: True if no row was left out. power: the values
    have been multiplied by (number of rows) ** power. learnt: True if a gradient flows through the tensor.
    """

    axis: int
    each: int | None = 1
    whole: bool = True
    power: int = 0
    learnt: bool = False


class Own(NamedTuple):
    """A sum over this rank's rows (degree 1) or a constant (degree 0), times (number of rows) ** power. cuts: names
    of the sums that it is computed from."""

    degree: int
    power: int
    cuts: frozenset[Any]
    learnt: bool = False


class Joint(NamedTuple):
    """A number computed from sums over all ranks, so that it is equal on every rank."""

    learnt: bool = False


class Sizes(NamedTuple):
    """A shape with entries that depend on the number of rows: (degree, power) for these, as in Own, and None for
    others."""

    of: tuple[tuple[int, int] | None, ...]


class Places(NamedTuple):
    """The indices of the rows that a mask keeps."""


Value = Fixed | Rows | Own | Joint | Sizes | Places
SUM, MEAN, COUNT = (1, 0), (1, -1), (0, 1)  # (degree, power) of an entry, as in Own


def static(tensor: Any) -> Any:
    """The tensor's value, which must be known while the graph is built. Raises NotApart if it is not."""
    value = tf.get_static_value(tensor)
    if value is None and tensor.op.type in KNOWN:
        value = KNOWN[tensor.op.type](tensor.op)
    if value is None:
        raise NotApart(f"{tensor.op.type} is no constant")
    return value


def _entry(op: Any) -> Any:
    """The value that a StridedSlice takes from a shape, if it is a single entry; None if it is not known."""
    of = op.inputs[0].op
    if of.type != "Shape" or op.get_attr("shrink_axis_mask") != 1 or of.inputs[0].shape.rank is None:
        return None
    size = of.inputs[0].shape[int(static(op.inputs[1])[0])]
    return None if size is None else np.array(size)


# tf.get_static_value does not evaluate these operations.
KNOWN: dict[str, Callable[[Any], Any]] = {
    "AddV2": lambda op: static(op.inputs[0]) + static(op.inputs[1]),
    "Sub": lambda op: static(op.inputs[0]) - static(op.inputs[1]),
    "Mul": lambda op: static(op.inputs[0]) * static(op.inputs[1]),
    "Pack": lambda op: np.stack([static(each) for each in op.inputs]),
    "StridedSlice": _entry,
}


def rank_of(tensor: Any) -> int:
    if tensor.shape.rank is None:
        raise NotApart(f"{tensor.op.type} has an unknown number of dimensions")
    return int(tensor.shape.rank)


def needed(outputs: Iterable[Any], known: Callable[[Any], bool]) -> list[Any]:
    """The operations that lead to these outputs, in order of creation. The search ends at tensors that are `known`."""
    seen, waiting = {}, [tensor for tensor in outputs if not known(tensor)]
    while waiting:
        tensor = waiting.pop()
        if tensor.op.name not in seen:
            seen[tensor.op.name] = tensor.op
            waiting += [each for each in tensor.op.inputs if not known(each)]
    return sorted(seen.values(), key=lambda op: op._id)


class Flow:
    """Finds the kind of value of each tensor between `sources` and the outputs, by the tensor's name.

    rule_of: gives the rule of an operation. of_all: names of tensors that already cover all ranks. cuts: names of the
    sums that must cover all ranks, in the order in which they were found.
    """

    def __init__(
        self, sources: dict[str, Value], rule_of: Callable[[Any], Callable[..., Any]], of_all: Iterable[str] = ()
    ) -> None:
        self._sources, self._rule_of, self._of_all = sources, rule_of, set(of_all)
        self.cuts: dict[str, None] = {}
        self.values: dict[str, Value] = {}

    def run(self, outputs: Sequence[Any]) -> list[Value]:
        """The kind of value of each output, found anew until no more cuts appear. Raises NotApart."""
        operations = needed(outputs, lambda tensor: tensor.name in self._sources)
        while True:
            before = len(self.cuts)
            self.values = dict(self._sources)
            for op in operations:
                given = [self._value(tensor) for tensor in op.inputs]
                found = _plain(op, given) or self._rule_of(op)(self, op, given)
                values = found if isinstance(found, list) else [found] * len(op.outputs)
                for tensor, value in zip(op.outputs, values, strict=True):
                    is_joint = tensor.name in self._of_all
                    self.values[tensor.name] = Joint(getattr(value, "learnt", False)) if is_joint else value
            if len(self.cuts) == before:
                return [self._value(tensor) for tensor in outputs]

    def _value(self, tensor: Any) -> Value:
        value = self.values[tensor.name]
        # In one operation sums over this rank and sums over all ranks do not mix: if one sum covers all ranks, all
        # must.
        return self.joint(value) if isinstance(value, Own) and value.cuts & self.cuts.keys() else value

    def joint(self, value: Value) -> Joint:
        """The value with its sums taken over all ranks; the sums are added to `cuts`. Raises NotApart for a value per
        row."""
        if isinstance(value, (Rows, Sizes, Places)):
            raise NotApart("one value per sample where one number for the batch is needed")
        if isinstance(value, Own):
            self.cuts |= dict.fromkeys(value.cuts)
        return Joint(getattr(value, "learnt", False))

    def own(self, tensor: Any, kind: tuple[int, int], rows: Rows | None = None) -> Value:
        """The value of a tensor that is a new sum or a number of rows: Joint if it must cover all ranks, else Own."""
        learnt = rows is not None and rows.learnt and tensor.dtype.is_floating
        own = Own(*kind, frozenset([tensor.name]), learnt)
        return self.joint(own) if tensor.name in self.cuts else own


def learnt(op: Any, given: Sequence[Value]) -> bool:
    """True if a gradient flows through the operation's result."""
    floats = any(tensor.dtype.is_floating for tensor in op.outputs)
    return floats and op.type != "StopGradient" and any(getattr(value, "learnt", False) for value in given)


def _plain(op: Any, given: Sequence[Value]) -> Value | None:
    """The result's value if all inputs are Fixed or Joint, so that no rule is needed; else None."""
    if op.type == "ReadVariableOp":
        return Fixed(learnt=bool(op.outputs[0].dtype.is_floating))
    if all(isinstance(value, Fixed) for value in given):
        if op.type == "Placeholder":
            raise NotApart("a tensor of another tf.function's graph")
        return Fixed(learnt(op, given))
    if all(isinstance(value, (Fixed, Joint)) for value in given):
        if op.op_def.is_stateful or op.type.endswith(("If", "While", "Case")):
            raise NotApart(op.type)
        return Joint(learnt(op, given))
    return None


def rows_of(flow: Flow, op: Any, given: Sequence[Value], axis: int, **changed: Any) -> Rows:
    """The Rows of a result whose rows lie along `axis`; the other fields follow from the inputs, or from `changed`."""
    found = [value for value in given if isinstance(value, Rows)]
    if len({each.power for each in found}) > 1:
        raise NotApart("samples that were divided by different numbers")
    return Rows(
        **{
            "axis": axis,
            "each": _each(found),
            "whole": all(each.whole for each in found),
            "power": found[0].power if found else 0,
            "learnt": learnt(op, given),
        }
        | changed
    )


def _each(found: Sequence[Rows]) -> int | None:
    known = {value.each for value in found} or {1}
    return known.pop() if len(known) == 1 else 0 if 0 in known else None


def only_rows(op: Any, given: Sequence[Value], *, others: bool = True) -> list[tuple[Any, Rows]]:
    """(input, its Rows) for each input that is Rows. Raises NotApart if another input is not Fixed; with others=False,
    if there is any other input."""
    for value in given:
        if not isinstance(value, Rows) and not (others and isinstance(value, Fixed)):
            raise NotApart(f"{op.type} of {type(value).__name__}")
    return [(tensor, value) for tensor, value in zip(op.inputs, given, strict=True) if isinstance(value, Rows)]
