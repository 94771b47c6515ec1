"""Doubts about measured times and throughput of inference."""

from __future__ import annotations

from ..model.timeline import Doubt

# A load of fewer requests raises a doubt: then the p99 latency is one of the two slowest requests.
FEW_REQUESTS = 200
# The load generator may be late by this share of the p99 latency before a doubt is raised.
LATE = 0.1


def no_gpu() -> Doubt:
    return Doubt(
        "no-gpu",
        "there is no GPU here: only the CPU is measured, so there is no crossover",
        "run this on a machine with a GPU; ringscope doctor shows what TensorFlow finds",
    )


def replicas_share_cores() -> Doubt:
    return Doubt(
        "replicas-share-cores",
        "no GPU: all replicas share the cores of one CPU, so their gain shows how well TensorFlow uses cores, not what "
        "GPUs would gain",
        "use these numbers for this CPU only; measure replicas again on a machine with GPUs",
    )


def load_late(loads: int, of: int, worst_ns: int) -> Doubt:
    return Doubt(
        "load-late",
        f"{loads} of {of} loads sent requests later than planned, at p99 by up to {worst_ns / 1e6:.1f} ms: latency "
        "counts from the planned arrival, so it includes this delay",
        "lower --rates, or send the load from another machine (--url)",
    )


def few_requests(loads: int, of: int, fewest: int) -> Doubt:
    return Doubt(
        "few-requests",
        f"{loads} of {of} loads had fewer than {FEW_REQUESTS} requests, one only {fewest}, so their p99 latency is "
        "one of the slowest requests",
        "raise --seconds",
    )


def one_machine() -> Doubt:
    return Doubt(
        "load-beside-server",
        "the load generator runs on the server's machine and takes cores from the server",
        "if a few percent matter, send the load from another machine than the server's: start the server there, and "
        "give its --url here",
    )
