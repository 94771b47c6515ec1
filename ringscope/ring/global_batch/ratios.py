"""Losses that divide one sum over the batch by another (a masked mean, say), with both sums taken over all ranks.

If each rank divided its own sums, the mean of the quotients would not be the quotient on the joined batch. The graph of
the function shows which of its sums must cover all ranks (flow.py). A sum is identified by its kind and by the number
of sums of that kind before it: the function is called again while the step is traced, and these sums are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf
from . import totals
from .flow import MEAN, SUM, Fixed, Flow, Joint, NotApart, Own, Rows, Value
from .flow_rules import rule_of
from .reductions import Sum, Taken, each_sum, taken


class Apart(NamedTuple):
    """The way in which the results of a function depend on the rows of its batch.

    kinds: for each result `mean`, `sum`, `rows` (a value per row), `some rows` (a value for each that a mask keeps),
    `joined` (computed from sums over all ranks) or `fixed`. cuts: (kind, turn) of each sum that must be exchanged ->
    if the sum is a mean, the Rows that it is the mean of, else None. likes: kind -> `Sum.like` of each sum of that
    kind, up to the last one that is exchanged.
    """

    kinds: tuple[str, ...]
    cuts: dict[tuple[str, int], Rows | None]
    likes: dict[str, tuple[str, ...]]

    @property
    def kind(self) -> str:
        (kind,) = self.kinds
        return kind


def look(
    function: Callable[..., Any],
    given: Sequence[Any],
    learnt: Sequence[bool],
    *,
    joins: Sequence[str] = (),
    is_traced: bool | None = None,
) -> Apart | None:
    """Find from a function's graph how its results depend on the rows of its batch; None if the graph does not show it.

    function: gives a number or a list of numbers. given: its arguments; the first axis of each tensor is the batch's.
    learnt: for each argument, True if gradients go to it. joins: kinds of results that must cover all ranks, too.
    is_traced: True if the function will be called inside a graph; None: as now.
    """
    is_traced = not tf.executing_eagerly() if is_traced is None else is_traced
    try:
        found = taken(function, given, open_batch=True)
        try:
            apart = _read(found, learnt, joins)
        except NotApart:
            if not found.of_all:
                raise
            # the function's author joins the ranks by `ring.sum`
            return Apart(("joined",) * len(found.outputs), {}, {})
        if not is_traced and any(kind == "Size" for kind, _ in apart.cuts):
            raise NotApart("a batch size that no operation of the graph gives")
        if apart.cuts:
            again = taken(function, given, open_batch=False)
            if _likes(again.sums, apart.cuts) != apart.likes:
                raise NotApart("a function that sums other values when the batch has this shape")
        return apart
    except Exception:  # NotApart, or any error of a user's function
        return None


def _read(found: Taken, learnt: Sequence[bool], joins: Sequence[str]) -> Apart:
    if any(not isinstance(outer, tf.__internal__.EagerTensor) for outer, _ in found.graph.captures):
        raise NotApart("a tensor of another tf.function's graph")
    sources: dict[str, Value] = {inner.name: Fixed() for _, inner in found.graph.captures}
    sources |= {tensor.name: Rows(0, learnt=tensor.dtype.is_floating) for tensor in found.of_layers}
    for part, is_learnt in zip(found.inputs, learnt, strict=True):
        for tensor in tf.nest.flatten(part):
            if isinstance(tensor, tf.Tensor):
                sources[tensor.name] = Rows(0, learnt=is_learnt and tensor.dtype.is_floating)
    flow = Flow(sources, rule_of, [tensor.name for tensor in found.of_all])
    values = flow.run(found.outputs)
    for value, tensor in zip(values, found.outputs, strict=True):
        # Keras would take a vector of sums for a loss per row.
        several = isinstance(value, Own) and tensor.shape.rank
        if several or _kind(value) in ("joined", *joins):
            flow.joint(value)
    kinds = tuple(_kind(value) for value in flow.run(found.outputs))
    by_name = {each.total.name: each for each in found.sums}
    cuts: dict[tuple[str, int], Rows | None] = {}
    for name in flow.cuts:
        if name not in by_name:
            raise NotApart("a value that must be equal on all ranks comes from no sum or mean over the batch")
        cut = by_name[name]
        rows = flow.values[cut.total.op.inputs[0].name] if cut.kind == "Mean" else None
        cuts[cut.kind, cut.turn] = rows if isinstance(rows, Rows) else None
    return Apart(kinds, cuts, _likes(found.sums, cuts))


def _likes(sums: Sequence[Sum], cuts: Iterable[tuple[str, int]]) -> dict[str, tuple[str, ...]]:
    """Kind -> `Sum.like` of each sum of that kind, up to the last one that must be exchanged."""
    last = {kind: turn for kind, turn in sorted(cuts)}
    return {kind: tuple(s.like for s in sums if s.kind == kind and s.turn <= turn) for kind, turn in last.items()}


def _kind(value: Value) -> str:
    if isinstance(value, Rows) and not value.axis and not value.power:
        return "rows" if value.whole else "some rows"
    if isinstance(value, Fixed):
        return "fixed"
    if isinstance(value, Own):
        return {MEAN: "mean", SUM: "sum", (0, 0): "fixed"}.get((value.degree, value.power), "joined")
    if isinstance(value, Joint):
        return "joined"
    raise NotApart(type(value).__name__)


@contextmanager
def of_all_ranks(
    apart: Apart | None, share: totals.Share, ranks: int, *, uneven: bool, name: str = "the loss"
) -> Iterator[None]:
    """Within this context, call the function once: the sums that `apart.cuts` lists are then taken over all ranks.

    uneven: the ranks' batches may differ in size. Raises RingscopeError at the end if the function did not take the
    sums that it took in the trial.
    """
    if apart is None or not apart.cuts:
        yield
        return
    seen: list[Sum] = []

    def take(found: Sum, values: Any) -> Any:
        seen.append(found)
        place = found.kind, found.turn
        if place not in apart.cuts:
            return found.total
        return _everybodys(values, found.total, apart.cuts[place], share, ranks, uneven)

    with each_sum(take):
        yield
    if _likes(seen, apart.cuts) != apart.likes:
        raise RingscopeError(
            f"{name} computes different sums each time it is traced, so ring cannot tell which of them must cover all "
            "ranks; compute these by ring.sum(values) or ring.mean(values, mask)"
        )


def _everybodys(values: Any, own: Any, rows: Rows | None, share: totals.Share, ranks: int, uneven: bool) -> Any:
    if rows is None:
        return totals.of_all(own, share, ranks)
    # The mean is over equally many rows on every rank, or is weighted by the number of rows.
    if rows.whole and not uneven:
        return totals.of_all(own / ranks, share, ranks)
    count = tf.cast(tf.shape(values)[rows.axis], own.dtype)
    total = totals.of_all(tf.math.multiply_no_nan(own, count), share, ranks)  # the mean of no rows is NaN
    return total / tf.stop_gradient(share(count))
