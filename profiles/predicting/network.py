"""Estimate the time that an all-reduce between hosts adds (docs/reference/measures.md, "Prediction across hosts").

A hierarchical all-reduce: gradients are summed inside each host first, so S bytes cross the network, over all
links of a host at once. Between H hosts the estimate takes the cheaper of the two algorithms that NCCL
chooses from (costs by Thakur, Rabenseifner, Gropp 2005; latency a, bandwidth b of a host's links together):

    ring  2 (H - 1) a + 2 (H - 1) / H S / b          tree  2 log2(H) a + 2 S / b

The backward pass, two thirds of a step's compute, may hide this time. A recording gives the hidden share. Without a
recording, the estimate hides half of what could be hidden, and the interval reaches from all of that to none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..ground import typed
from ..ground.errors import RingscopeError
from ..ground.files import text_of

BACKWARD_SHARE = 2 / 3  # share of the backward pass: two matrix products per weight, against one in the forward pass
UNKNOWN_OVERLAP = 0.5

# Gigabits: GB, which means bytes, is refused.
_TEXT = re.compile(
    r"(?:(\d{1,6})\s*x\s*)?(\d{1,9}(?:\.\d{1,9})?)\s*Gb(?:it)?/s(?:\s*,\s*(\d{1,9}(?:\.\d{1,9})?)\s*us)?"
)


@dataclass(frozen=True, slots=True)
class Network:
    """The links of one host: number, speed of each, latency of a message."""

    links: int
    bytes_per_s: float  # speed of one link
    latency_ns: float

    @property
    def host_bytes_per_s(self) -> float:
        return self.links * self.bytes_per_s


def network(text: str) -> Network:
    """The network that a text such as `8x200Gb/s,2us` describes: 8 links per host of 200 Gbit/s each, latency 2 µs.
    Without a number of links there is one; without a latency it is 5 µs."""
    found = _TEXT.fullmatch(text.strip())
    if not found or not int(found[1] or 1) or not float(found[2]):
        raise RingscopeError(
            f"--network {text}: write it as 8x200Gb/s,2us: links of a host, speed of each, latency; or name a file "
            "with the times of an all-reduce between hosts"
        )
    return Network(int(found[1] or 1), float(found[2]) * 1e9 / 8, float(found[3] or 5) * 1e3)


def measured(path: Path) -> Network:
    """The network between the hosts on which `python -m harness.doctor.allreduce` wrote the file `path`.

    Latency and bandwidth of a ring between the hosts are fitted to the times in the file, by least squares of the
    relative errors. Both include the time inside a host."""
    try:
        found = typed.loads(text_of(path))
        hosts, sweep = found["hosts"], [(one["bytes"], one["time_ns"]) for one in found["sweep"]]
        for number in (hosts, *(number for pair in sweep for number in pair)):
            typed.check(int, number, "what is counted")
    except (OSError, ValueError, KeyError, TypeError):
        problem = "not a file that python -m harness.doctor.allreduce wrote"
        raise RingscopeError(
            f"--network {path}: {problem}; measure with that program, or write links as 8x200Gb/s,2us"
        ) from None
    if hosts < 2 or len({size for size, _ in sweep}) < 2 or min(took for _, took in sweep) <= 0:
        raise RingscopeError(
            f"--network {path}: too little is measured in it; measure at least two sizes between at least two hosts"
        )
    times = np.array([took for _, took in sweep], float)
    costs = np.array([[2 * (hosts - 1), 2 * (hosts - 1) / hosts * size] for size, _ in sweep]) / times[:, None]
    (latency_ns, byte_ns), *_ = np.linalg.lstsq(costs, np.ones(len(sweep)), rcond=None)
    if latency_ns < 0:  # a latency below 0 means that only the bandwidth can be fitted
        latency_ns, byte_ns = 0.0, costs[:, 1].sum() / (costs[:, 1] ** 2).sum()
    if byte_ns <= 0:
        raise RingscopeError(f"--network {path}: more bytes took no longer, which no network does; measure again")
    return Network(1, float(1e9 / byte_ns), float(latency_ns))


def between_hosts_ns(hosts: int, step_bytes: int, net: Network, pieces: int = 1) -> float:
    """Time of an all-reduce of `step_bytes` between hosts, in ns; 0 for one host. pieces: number of parts, each with
    the latency."""
    if hosts < 2:
        return 0.0
    moved_ns = step_bytes / net.host_bytes_per_s * 1e9
    ring = 2 * (hosts - 1) * net.latency_ns * pieces + 2 * (hosts - 1) / hosts * moved_ns
    tree = 2 * math.log2(hosts) * net.latency_ns * pieces + 2 * moved_ns
    return min(ring, tree)


@dataclass(frozen=True, slots=True)
class Added:
    """ns that the network adds to a step: estimated, at least (if all is hidden that can be) and at most."""

    expected_ns: float
    least_ns: float
    most_ns: float


def added(
    hosts: int, step_bytes: int, net: Network, compute_ns: float, *, overlap: float | None = None, pieces: int = 1
) -> Added:
    """Time that the network adds to a step of `compute_ns`. `overlap`: share of the all-reduce that is hidden under
    compute in a recording; None without a recording."""
    takes_ns = between_hosts_ns(hosts, step_bytes, net, pieces)
    hideable_ns = min(takes_ns, BACKWARD_SHARE * compute_ns)
    if overlap is not None:
        exposed = takes_ns - min(overlap * takes_ns, hideable_ns)
        return Added(exposed, exposed, exposed)
    return Added(takes_ns - UNKNOWN_OVERLAP * hideable_ns, takes_ns - hideable_ns, takes_ns)
