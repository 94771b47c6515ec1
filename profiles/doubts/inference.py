"""Doubts about what inference costs."""

from __future__ import annotations

from ..model.timeline import Doubt

# Loads of fewer requests: their p99 is one of the two slowest.
FEW_REQUESTS = 200
# The share of the p99 latency that the load itself may be late.
LATE = 0.1


def no_gpu() -> Doubt:
    return Doubt(
        "no-gpu",
        "there is no GPU here: the CPU alone is measured, and no crossover can be told",
        "run it where a GPU is; see what TensorFlow finds with ringscope doctor",
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
        f"{loads} of {of} loads: sent later than planned, the p99 by up to {worst_ns / 1e6:.1f} ms: latency counts "
        "from the planned arrival, so a part of it is the load's own",
        "lower --rates, or send the load from another machine (--url)",
    )


def few_requests(loads: int, of: int, fewest: int) -> Doubt:
    return Doubt(
        "few-requests",
        f"{loads} of {of} loads: fewer than {FEW_REQUESTS} requests, {fewest} the least: p99 is one of the slowest",
        "raise --seconds",
    )


def one_machine() -> Doubt:
    return Doubt(
        "load-beside-server",
        "the load runs on the machine of its server and takes cores from it",
        "for the last percents send it from another machine: start the server there, and give its --url here",
    )
