"""Gradients summed over ranks while the program that computes them runs on, the last layers' first.

Work after a program of XLA waits for the program's end. So the program itself holds calls that hand gradients over as
soon as they are computed, and one that waits for their sums; they are Horovod's, registered with XLA
(scripts/horovod_in_xla.cc). It is not for free: NCCL then runs on a stream of its own, and a GPU hands over from kernel
to kernel 0.3 microseconds later (docs/results, 2026-11-25). So it is for exchanges that take long: between hosts, and
between GPUs without NVLink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ...exchange import IN_STREAM, on_device_of, outside_scopes, reduced_on_host
from ...internals.frameworks import has_gpu, hvd, tf
from ...say import once
from ..types import size_bytes
from . import xla_calls
from .trace_order import Traced

BUCKET_BYTES = 32 << 20  # of gradients that are handed over together
# Least length of a step's exchange: a shorter one costs more beside the backward pass than after it.
WORTH_S = 2e-3
TRIED_BYTES = 4 << 20, 64 << 20
TRIES = 10  # a GPU that has been idle reaches its speed after some
SLOW_S = 0.02  # for the smaller of the two: the larger is not tried then


class Overlap:
    """How a step's gradients travel where its program hands them over. op: Horovod's, average or sum. wanted: whether
    all do that can; None: where their exchange takes `WORTH_S`."""

    def __init__(self, op: Any, wanted: bool | None) -> None:
        self._op, self._wanted = op, wanted
        self._s_per_byte = seconds_per_byte() if wanted is None else 0.0

    def takes(self, gradients: Sequence[Any], apart: Sequence[int]) -> bool:
        """True if these travel so; what is one bucket has nothing to run beside. apart: which are no gradients."""
        given = [g for g in gradients if g is not None]
        if apart or not all(map(xla_calls.is_sent, given)) or len(_buckets(given)) < 2:
            return False
        count = sum(map(size_bytes, given))
        taken_s = count * self._s_per_byte
        if not (taken_s > WORTH_S if self._wanted is None else self._wanted):
            return False
        if not xla_calls.is_registered():
            once("gradients are exchanged after the backward pass: this Horovod, or TensorFlow, has no calls for XLA")
            return False
        price = f", which take some {1e3 * taken_s:.1f} ms here," if taken_s else ""
        once(f"gradients ({count / 1e6:.0f} MB a step){price} are exchanged while the backward pass runs")
        return True

    def inside(self, gradients: Sequence[Any], traced: Traced) -> list[Any]:
        """All ranks' gradients, in a program that XLA compiles; None stays None. traced: the step up to them."""
        return of_given(gradients, lambda given: self._inside(given, traced))

    def between(self, gradients: Sequence[Any]) -> list[Any]:
        """The same for a rank that computes without XLA: in the same buckets, by the same names."""
        return of_given(gradients, self._between)

    def _inside(self, gradients: Sequence[Any], traced: Traced) -> list[Any]:
        summed = list(gradients)
        places, since = [traced.made_at(gradient) for gradient in gradients], traced.backward
        for number, bucket in enumerate(_buckets(gradients)):
            cut = max(since, *(places[i] for i in bucket))
            passing = traced.crossing(since, cut)
            handed = xla_calls.hand_over([gradients[i] for i in bucket], passing, _name(number), self._op)
            traced.lead(passing, handed[len(bucket) :], cut)
            for i, one in zip(bucket, handed, strict=False):
                summed[i] = one
            since = cut
        return xla_calls.summed(summed)

    def _between(self, gradients: Sequence[Any]) -> list[Any]:
        summed = list(gradients)
        for number, bucket in enumerate(_buckets(gradients)):
            values = [gradients[i] for i in bucket]
            with outside_scopes(), on_device_of(values[0]):
                sums = hvd.grouped_allreduce(values, op=self._op, name=_name(number))
            for i, value in zip(bucket, sums, strict=True):
                summed[i] = value
        return summed


def of_given(gradients: Sequence[Any], exchange: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    """The sums of the gradients that are there, in their places; None stays None."""
    summed = iter(exchange([g for g in gradients if g is not None]))
    return [None if g is None else next(summed) for g in gradients]


@cache
def seconds_per_byte() -> float:
    """What an all-reduce takes for each byte: by two sizes, so that what it takes to begin is left out. To be called on
    all ranks, which get one answer. 0 without a GPU: its compiled steps are for trying them."""
    if not has_gpu():
        return 0.0
    small, large = TRIED_BYTES
    taken_s = all_reduce_s(small)
    if taken_s > SLOW_S:
        return taken_s / small
    return max(0.0, all_reduce_s(large) - taken_s) / (large - small)


def all_reduce_s(count: int) -> float:
    """Seconds that an all-reduce of `count` bytes takes, the shortest of some tries. Each try is timed on the rank that
    came last to it, since the others wait for that rank too."""
    tries = [_try_s(count) for _ in range(TRIES)]
    return float(min(reduced_on_host(tries, hvd.Min, "tries")))


def _try_s(count: int) -> float:
    tensor = tf.zeros([count // 4])
    float(tensor[0])
    began = time.perf_counter()
    float(_summed(tensor)[0])
    return time.perf_counter() - began


@tf.function(autograph=False)
def _summed(tensor: Any) -> Any:
    # In a graph, where an operation has its name: called eagerly it runs on Horovod's stream, and all kernels of the
    # process follow each other 0.3 microseconds later from then on.
    return hvd.allreduce(tensor, op=hvd.Sum, name=f"{IN_STREAM}_tried")


def _buckets(gradients: Sequence[Any]) -> list[list[int]]:
    """Which travel together, of one type each, from the last to the first, as a backward pass computes them."""
    buckets: list[list[int]] = []
    filling: dict[Any, list[int]] = {}
    filled: dict[Any, int] = {}
    for i in reversed(range(len(gradients))):
        kind = gradients[i].dtype
        filling.setdefault(kind, []).append(i)
        filled[kind] = filled.get(kind, 0) + size_bytes(gradients[i])
        if filled[kind] >= BUCKET_BYTES:
            buckets.append(filling.pop(kind))
            del filled[kind]
    return buckets + list(filling.values())


def _name(bucket: int) -> str:
    return f"{IN_STREAM}_bucket_{bucket}"
