"""Records that `ringscope infer` writes: `inference.json` (docs/reference/files.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..model.timeline import Doubt

SCHEMA = "ringscope.inference/1"


@dataclass(frozen=True, slots=True)
class Call:
    """One model on one device with one batch: from the samples in host memory to the answers there.

    call_ns = copies_ns + compute_ns + launches_ns, where these are known.
    """

    model: str
    parameters: int
    device: str  # CPU or GPU
    batch: int
    calls: int
    call_ns: int  # the median
    p95_ns: int
    copies_ns: int | None = None  # copies while no kernel runs
    compute_ns: int | None = None  # kernels
    launches_ns: int | None = None  # the rest, in which the GPU is idle: the host prepares, launches, waits
    kernels: int | None = None  # launched per call
    why: str = ""  # the reason, if the parts are unknown

    @property
    def samples_per_s(self) -> float:
        return self.batch * 1e9 / self.call_ns


@dataclass(frozen=True, slots=True)
class Crossover:
    """The point from which a model's batches are faster on the GPU than on the CPU."""

    model: str
    cpu_until: int | None  # the largest batch measured below the crossover; None: the GPU is faster from the first on
    gpu_from: int | None  # the smallest measured from which on the GPU is faster; None: it never is
    text: str  # one sentence for the user, with the reason


@dataclass(frozen=True, slots=True)
class Together:
    """Several devices used at once: by independent processes, or by one process that splits its batch."""

    model: str
    way: str  # replicas or synchronous
    processes: int
    devices: int
    batch: int  # samples per device and call
    samples_per_s: float
    p50_ns: int  # latency of a call
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Served:
    """A server under load, at one waiting limit and one limit of the batch. Latency counts from the planned arrival."""

    server: str  # its name, or its URL
    model: str  # empty: the only model of a running server
    most: int | None  # the largest batch in requests (b); None if the server has limits of its own
    wait_ms: float | None  # the longest wait for a batch (t)
    asked_per_s: float  # the rate of arrivals that was asked for
    requests: int
    lost: int  # without a good answer
    wrong: int  # answered, but with values that are not the sample's
    answered_per_s: float | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    keeps_up: bool  # no request is lost, and the queue does not grow
    late_p99_ns: int  # how much later than planned the load was sent
    mean_batch: float | None = None  # requests in a batch; None where the server does not tell
    simulated_p50_ns: int | None = None  # latency of a simulation without HTTP and JSON
    simulated_p99_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The limits that serve a rate with the smallest p99."""

    model: str
    asked_per_s: float
    most: int | None  # None: nothing measured keeps up
    wait_ms: float | None
    text: str


@dataclass(slots=True)
class Inference:
    """The whole report."""

    calls: list[Call] = field(default_factory=list)
    crossovers: list[Crossover] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)  # what, why
    doubts: Sequence[Doubt] = ()
    machine: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One object."""
        rows = asdict(self)
        for row, call in zip(rows["calls"], self.calls, strict=True):
            row["samples_per_s"] = round(call.samples_per_s, 3)
        return {"schema": SCHEMA, **rows}
