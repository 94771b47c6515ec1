"""Sum gradients over ranks in the middle of a step that XLA compiles as one program, before each of its updates.

Each update waits for its sums inside the program, by Horovod's calls. In two programs, with the exchange between them,
each gradient would cost host time as an output of the first and an argument of the second (one_program.py). And some
steps cannot be divided: they update twice, with several optimizers, or use their weights after an update, like a GAN,
an actor and a critic, or a teacher that follows the weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ..exchange import IN_STREAM, on_device_of, outside_scopes, summed_as
from ..global_batch.totals import one
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
    """True if gradients can be summed inside a program. False in elastic training, where a lost rank would end the
    program."""
    return op != "adasum" and not launcher.is_elastic() and xla_calls.is_registered()


class Inside:
    """Exchanges a step's gradients inside its program.

    op: average or sum. otherwise: sums gradients that cannot be exchanged inside; it also gets the places of values
    whose maximum over ranks is taken (`float8_scales`). outgoing: returns the form in which an update's gradients
    travel. overlap: exchanges the first update's gradients during the backward pass, if it can.
    """

    def __init__(
        self, op: str, otherwise: Exchange, outgoing: Callable[[], Outgoing], overlap: Overlap | None = None
    ) -> None:
        self._op, self._otherwise, self._outgoing, self._overlap = horovods(op), otherwise, outgoing, overlap
        self._alike = self._is_bound = False
        self._updates = self._numbers = 0
        self._tokens: dict[Any, Any] = {}  # graph -> an output of its last exchange, on which the next exchange depends

    def begin(self, *, alike: bool, is_bound: bool) -> None:
        """Begin the trace of another step, whose exchanges are counted from 0. alike: True if the ranks' batches have
        one shape. is_bound: True to raise NotOneUpdate for gradients that cannot be exchanged inside."""
        self._updates = self._numbers = 0
        self._alike, self._is_bound, self._tokens = alike, is_bound, {}

    def total(self, own: Any, *, compiled: bool) -> Any:
        """The sum over ranks of a number that each rank has, such as a loss's denominator. No gradient flows through
        the sum.

        Call this function in the same order on all ranks, like `exchange`. On a GPU the number stays there: an exchange
        between two programs would fetch it, and the host would wait until the step before has ended.
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
        """The gradients summed over ranks, in the types of the variables; None stays None.

        Call this in the order of the step's updates on all ranks, also on ranks that do not compile the step. Raises
        NotOneUpdate if the gradients cannot be exchanged inside a step that must be (`begin`).
        """
        place, number = after_update.place(), self._updates
        self._updates += 1
        outgoing = self._outgoing()
        typed = outgoing.typed(gradients, variables, alike=self._alike)
        if outgoing.largest or not all(g is None or xla_calls.is_sent(g) for g in typed):
            if self._is_bound:
                raise NotOneUpdate(
                    "the train step makes more than one update, so its gradients cannot be summed inside the program"
                )
            return outgoing.unpack(self._otherwise(typed, outgoing.largest), variables)
        sums = self._sums(outgoing.pack(typed), place, number, compiled=compiled)
        return outgoing.unpack(sums, variables)

    def _sums(self, gradients: list[Any], place: int, number: int, *, compiled: bool) -> list[Any]:
        """The gradients summed over ranks; None stays None. place: number of operations traced before. number: of the
        update in its step."""
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
        """The sums of these tensors over ranks, type by type.

        In a program each exchange depends on the one traced before. Otherwise XLA could run the calls in any order, and
        in another order for another batch shape: two ranks could then wait for each other forever.
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
