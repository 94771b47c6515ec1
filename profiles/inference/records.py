"""The rows of `inference.json`, which `ringscope infer` writes (docs/reference/files.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..model.timeline import Doubt

SCHEMA = "ringscope.inference/1"


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of one model on one device with one batch size; a call begins and ends with the data in host memory.
    call_ns = copies_ns + compute_ns + launches_ns, where these are known."""

    model: str
    parameters: int
    device: str  # CPU or GPU
    batch: int
    calls: int
    call_ns: int  # median over the calls
    p95_ns: int
    copies_ns: int | None = None  # time of copies while no kernel runs
    compute_ns: int | None = None  # time of kernels
    launches_ns: int | None = None  # the rest, in which the GPU is idle: the host prepares, launches or waits
    kernels: int | None = None  # number of kernels that a call launches
    why: str = ""  # why the parts of call_ns are unknown; empty if they are known

    @property
    def samples_per_s(self) -> float:
        return self.batch * 1e9 / self.call_ns


@dataclass(frozen=True, slots=True)
class Crossover:
    """The batch size from which a model is faster on the GPU than on the CPU."""

    model: str
    cpu_until: int | None  # largest measured batch below the crossover; None: the GPU is faster with every batch
    gpu_from: int | None  # smallest measured batch from which on the GPU is faster; None: it never is
    text: str  # one sentence for the user, with the reason


@dataclass(frozen=True, slots=True)
class Together:
    """Several devices used at once: by independent processes, or by one process that splits its batch."""

    model: str
    way: str  # "replicas" or "synchronous"
    processes: int
    devices: int
    batch: int  # samples per device and call
    samples_per_s: float
    p50_ns: int  # latency of a call
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Served:
    """A server under load, with one waiting limit and one batch limit. Latency counts from the planned arrival."""

    server: str  # name of the server, or its URL
    model: str  # empty for the only model of a running server
    most: int | None  # largest batch in requests (b); None if the server has limits of its own
    wait_ms: float | None  # waiting limit of a batch (t)
    asked_per_s: float  # planned rate of arrivals
    requests: int
    lost: int  # number of requests without a good answer
    wrong: int  # number of requests answered with values that are not the sample's
    answered_per_s: float | None
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    keeps_up: bool  # True if no request is lost and the queue does not grow
    late_p99_ns: int  # p99 of how much later than planned requests were sent
    mean_batch: float | None = None  # mean requests in a batch; None if the server does not tell
    simulated_p50_ns: int | None = None  # latency by a simulation of batching and model alone, without HTTP and JSON
    simulated_p99_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The batching limits that serve a request rate with the smallest p99 latency."""

    model: str
    asked_per_s: float
    most: int | None  # None: no measured limits keep up with the rate
    wait_ms: float | None
    text: str


@dataclass(slots=True)
class Inference:
    """All results in `inference.json`."""

    calls: list[Call] = field(default_factory=list)
    crossovers: list[Crossover] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)  # each: what failed, and why
    doubts: Sequence[Doubt] = ()
    machine: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `inference.json` holds."""
        rows = asdict(self)
        for row, call in zip(rows["calls"], self.calls, strict=True):
            row["samples_per_s"] = round(call.samples_per_s, 3)
        return {"schema": SCHEMA, **rows}
