"""Gradients summed over ranks in the middle of a step, before each of its updates, where it is compiled as a whole.

Each update waits for its sums inside of the one program, by Horovod's calls. In halves, with the exchange between two
programs, each gradient would be an output of the first and an argument of the second (`whole`); and a step that updates
twice, by several optimizers, or goes on with its weights after an update, as a GAN's, an actor's and critic's or a
teacher's that follows, has no halves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ..exchange import IN_STREAM, on_device_of, outside_scopes, summed_as
from ..global_batch.losses import one
from ..gradients.average import Exchange, horovods
from ..gradients.overlap import xla_calls
from ..gradients.overlap.buckets import Overlap, of_given
from ..gradients.overlap.trace_order import Traced
from ..gradients.wire import Outgoing
from ..internals.frameworks import hvd, tf
from ..lost import launcher
from . import after_update
from .choose import NotOneUpdate


def is_possible(op: str) -> bool:
    """True if gradients can be summed so here: not where ranks come and go, for a lost one would end the program."""
    return op != "adasum" and not launcher.is_elastic() and xla_calls.is_registered()


class Inside:
    """How a step's gradients travel inside the program.

    op: average or sum. otherwise: sums gradients that cannot travel so (given which are no gradients, `float8_scales`).
    outgoing: how an update's gradients travel. overlap: exchanges the first update's gradients during the backward
    pass, if the step takes it.
    """

    def __init__(
        self, op: str, otherwise: Exchange, outgoing: Callable[[], Outgoing], overlap: Overlap | None = None
    ) -> None:
        self._op, self._otherwise, self._outgoing, self._overlap = horovods(op), otherwise, outgoing, overlap
        self._alike = self._is_bound = False
        self._updates = self._numbers = 0
        self._tokens: dict[Any, Any] = {}  # what the last exchange of each graph left, for the next to come after it

    def begin(self, *, alike: bool, is_bound: bool) -> None:
        """Another step is traced: its exchanges count from the first. alike: the ranks' batches are of one shape.
        is_bound: gradients that cannot travel so are refused."""
        self._updates = self._numbers = 0
        self._alike, self._is_bound, self._tokens = alike, is_bound, {}

    def total(self, own: Any, *, compiled: bool) -> Any:
        """Everybody's sum of a number that each rank has, a loss's denominator. To be called as `exchange` is; no
        gradient goes through it. On a GPU the number stays there: summed between two programs it would be fetched, for
        which the host would wait until the step before has ended.
        """
        name = f"{IN_STREAM}_number_{self._numbers}"
        self._numbers += 1

        @tf.custom_gradient
        def summed(sent: Any) -> Any:
            (total,) = self._together([sent], name, hvd.Sum, compiled=compiled)
            return total, lambda _: tf.zeros_like(sent)

        kind = summed_as(own.dtype)
        total = summed(tf.cast(own, kind) * tf.cast(one(), kind))
        return tf.cast(total, own.dtype)

    def exchange(self, gradients: Sequence[Any], variables: Sequence[Any], *, compiled: bool) -> list[Any]:
        """All ranks' gradients, in the types of the variables; None stays None. To be called in the order of the
        step's updates on all ranks, some of which may not have it compiled.

        Raises NotOneUpdate where a step that is bound to it cannot have them.
        """
        place, number = after_update.place(), self._updates
        self._updates += 1
        outgoing = self._outgoing()
        typed = outgoing.typed(gradients, variables, alike=self._alike)
        if outgoing.largest or not all(g is None or xla_calls.is_sent(g) for g in typed):
            if self._is_bound:
                raise NotOneUpdate(
                    "the train step makes more than one update, so its gradients cannot be summed inside of it"
                )
            return outgoing.unpack(self._otherwise(typed, outgoing.largest), variables)
        sums = self._sums(outgoing.pack(typed), place, number, compiled=compiled)
        return outgoing.unpack(sums, variables)

    def _sums(self, gradients: list[Any], place: int, number: int, *, compiled: bool) -> list[Any]:
        """Of all ranks; None stays None. place: where in the trace they are there. number: of the update."""
        if number == 0 and self._overlap is not None and self._overlap.takes(gradients, ()):
            if not compiled:
                return self._overlap.between(gradients)
            sums = self._overlap.inside(gradients, Traced(place))
            first = next(g for g in sums if g is not None)
            self._leave(tf.cast(tf.reshape(first, [-1])[:1], tf.float32))
            return sums
        name = f"{IN_STREAM}_update_{number}"
        return of_given(gradients, lambda given: self._together(given, name, self._op, compiled=compiled))

    def _together(self, tensors: Sequence[Any], name: str, op: Any, *, compiled: bool) -> list[Any]:
        """All ranks' sums of these, type by type.

        In a program each exchange comes after the one that was traced before it. XLA may take calls that do not depend
        on each other in any order, and in another for another batch: two ranks that wait for the other's next would
        wait for ever.
        """
        by_type: dict[Any, list[int]] = {}
        for i, tensor in enumerate(tensors):
            by_type.setdefault(tensor.dtype, []).append(i)
        order = list(itertools.chain(*by_type.values()))
        if compiled:
            *found, token = xla_calls.sums([tensors[i] for i in order], [self._token()], name, op)
            self._leave(token)
        else:
            found = []
            for kind, those in by_type.items():
                with outside_scopes(), on_device_of(tensors[those[0]]):
                    found += hvd.grouped_allreduce([tensors[i] for i in those], op=op, name=f"{name}_{kind.name}")
        sums = dict(zip(order, found, strict=True))
        return [sums[i] for i in range(len(tensors))]

    def _token(self) -> Any:
        graph = tf.compat.v1.get_default_graph()
        while graph is not None and graph not in self._tokens:
            graph = getattr(graph, "outer_graph", None)
        return tf.zeros([1]) if graph is None else self._tokens[graph]

    def _leave(self, token: Any) -> None:
        self._tokens[tf.compat.v1.get_default_graph()] = token
