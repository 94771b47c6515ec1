"""Sum gradients over ranks while the backward pass still runs, beginning with the last layers' gradients.

TensorFlow starts later operations only when an XLA program has ended. So the program itself contains calls that hand
over gradients as soon as they are computed, and a call that waits for their sums. These calls are Horovod's, registered
with XLA (scripts/horovod_in_xla.cc). The calls have a price: NCCL then runs on a stream of its own, and the gap between
two kernels grows by 0.3 microseconds (docs/results, 2026-11-25). So they are used only where an exchange takes long:
between hosts, and between GPUs without NVLink.
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

BUCKET_BYTES = 32 << 20  # bytes of gradients in a bucket, which are handed over together
# Seconds. If a step's exchange takes less, it costs less after the backward pass than during it.
WORTH_S = 2e-3
TRIED_BYTES = 4 << 20, 64 << 20
TRIES = 10  # tries of an all-reduce; an idle GPU needs some to reach its speed
SLOW_S = 0.02  # seconds; if an all-reduce of the smaller size takes longer, the larger size is not tried


class Overlap:
    """Exchanges a step's gradients while its program runs. op: Horovod's average or sum. wanted: True: overlap whenever
    the gradients allow it; False: never; None: if their exchange takes longer than `WORTH_S`."""

    def __init__(self, op: Any, wanted: bool | None) -> None:
        self._op, self._wanted = op, wanted
        self._s_per_byte = seconds_per_byte() if wanted is None else 0.0

    def takes(self, gradients: Sequence[Any], apart: Sequence[int]) -> bool:
        """True if these gradients are exchanged during the backward pass; a single bucket has nothing to overlap
        with. apart: places of values that are no gradients."""
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
        """The gradients summed over ranks, inside a program that XLA compiles; None stays None. traced: the operations
        of the step that compute them."""
        return of_given(gradients, lambda given: self._inside(given, traced))

    def between(self, gradients: Sequence[Any]) -> list[Any]:
        """The sums of `inside`, for a rank whose step XLA does not compile: in equal buckets, under equal names."""
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
    """Apply `exchange` to the gradients that are not None, and return the results in their places."""
    summed = iter(exchange([g for g in gradients if g is not None]))
    return [None if g is None else next(summed) for g in gradients]


@cache
def seconds_per_byte() -> float:
    """Seconds that an all-reduce takes per byte, from two sizes, so that the fixed cost cancels. All ranks must call
    this function, and get the same answer. 0 without a GPU, where compiled steps only serve tests."""
    if not has_gpu():
        return 0.0
    small, large = TRIED_BYTES
    taken_s = all_reduce_s(small)
    if taken_s > SLOW_S:
        return taken_s / small
    return max(0.0, all_reduce_s(large) - taken_s) / (large - small)


def all_reduce_s(count: int) -> float:
    """Seconds of an all-reduce of `count` bytes: the shortest of some tries. In each try only the shortest time of any
    rank counts, because the other ranks also waited for the last one to arrive."""
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
    # In a graph the operation has a name. Called eagerly, it would run on Horovod's stream, and every gap between two
    # kernels of the process would be 0.3 microseconds longer from then on.
    return hvd.allreduce(tensor, op=hvd.Sum, name=f"{IN_STREAM}_tried")


def _buckets(gradients: Sequence[Any]) -> list[list[int]]:
    """The places of the gradients in each bucket. A bucket has one type. The last gradient comes first, as in a
    backward pass."""
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
