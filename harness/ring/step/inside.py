"""Gradients summed over ranks in the middle of a step, before each of its updates, where it is compiled as a whole.

A step that updates twice, by several optimizers, or goes on with its weights after an update, as a GAN's, an actor's
and critic's or a teacher's that follows, has no halves between which its gradients could be exchanged. Each update then
waits for its sums inside of the one program, by Horovod's calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..elastic import launcher
from ..exchange import IN_STREAM, hvd, on_device_of, outside_scopes, tf
from . import in_xla, overwritten
from .choose import NotOneUpdate
from .computed import as_computed
from .gradients import horovods
from .rows import Rows

Otherwise = Callable[[Sequence[Any], Sequence[int]], list[Any]]


def is_possible(op: str) -> bool:
    """Whether gradients can be summed so here: not where ranks come and go, for a lost one would end the program."""
    return op != "adasum" and not launcher.is_elastic() and in_xla.is_registered()


class Inside:
    """How a step's gradients travel then.

    op: average or sum. otherwise: sums of gradients (and which of them are no gradients, `overwritten`) that cannot
    travel so. keeps: what is computed in bfloat16 travels as that. narrow: the type that float32 travels as; None: as
    it is. as_rows: embeddings' as rows, where these are fewer (`rows`).
    """

    def __init__(self, op: str, otherwise: Otherwise, *, keeps: bool, narrow: Any | None, as_rows: bool) -> None:
        self._op, self._otherwise, self._keeps, self._narrow = horovods(op), otherwise, keeps, narrow
        self._as_rows, self._averages, self._alike = as_rows, op == "average", False
        self._updates = 0
        self._tokens: dict[Any, Any] = {}  # what the last exchange of each graph left, for the next to come after it

    def begin(self, *, alike: bool) -> None:
        """Another step is traced: its updates count from the first. alike: the ranks' batches are of one shape."""
        self._updates, self._alike, self._tokens = 0, alike, {}

    def exchange(self, gradients: Sequence[Any], variables: Sequence[Any], *, compiled: bool) -> list[Any]:
        """All ranks' gradients, in the types of the variables; None stays None. To be called in the order of the
        step's updates on all ranks, some of which may not have it compiled.

        Raises NotOneUpdate where a compiled step cannot have them.
        """
        name = f"{IN_STREAM}_update_{self._updates}"
        self._updates += 1
        rows = Rows(self._as_rows, averages=self._averages)
        dense = rows.pack(gradients, variables, alike=self._alike)
        if self._keeps:
            dense = [as_computed(g) for g in dense]
        apart = overwritten.places(variables)
        if self._narrow:
            dense = [g if g is None or i in apart else tf.cast(g, self._narrow) for i, g in enumerate(dense)]
        places = [i for i, g in enumerate(dense) if g is not None]
        if apart or not all(in_xla.is_sent(dense[i]) for i in places):
            if compiled:
                raise NotOneUpdate("the train step has no halves, and gradients that ranks cannot sum inside of it")
            if not self._narrow:
                return self._otherwise(gradients, apart)
            return _as_variables(self._otherwise(dense, apart), variables)
        by_type: dict[Any, list[int]] = {}
        for i in places:
            by_type.setdefault(dense[i].dtype, []).append(i)
        groups = {f"{name}_{kind.name}": [dense[i] for i in those] for kind, those in by_type.items()}
        sums = self._in_program(groups) if compiled else self._between(groups)
        for i, one in zip(itertools.chain(*by_type.values()), sums, strict=True):
            dense[i] = one
        return _as_variables(rows.unpack(dense), variables)

    def _in_program(self, groups: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Handed over type by type, and waited for once: the host has to come back each time.

        Each exchange comes after the one that was traced before it. XLA may take calls that do not depend on each other
        in any order, and in another for another batch: two ranks that wait for the other's next would wait for ever.
        """
        handed: list[Any] = []
        token = self._token()
        for name, those in groups.items():
            *found, token = in_xla.hand_over(those, [token], name, self._op)
            handed += found
        *sums, self._tokens[tf.compat.v1.get_default_graph()] = in_xla.summed([*handed, token])
        return sums

    def _token(self) -> Any:
        graph = tf.compat.v1.get_default_graph()
        while graph is not None and graph not in self._tokens:
            graph = getattr(graph, "outer_graph", None)
        return tf.zeros([1]) if graph is None else self._tokens[graph]

    def _between(self, groups: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
        for name, those in groups.items():
            with outside_scopes(), on_device_of(those[0]):
                yield from hvd.grouped_allreduce(those, op=self._op, name=name)


def _as_variables(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """In the variables' types."""
    return [None if g is None else tf.cast(g, v.dtype) for g, v in zip(gradients, variables, strict=True)]
