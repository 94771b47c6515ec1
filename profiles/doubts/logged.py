"""Doubts about the logs of NCCL's Inspector."""

from __future__ import annotations

from ..model.timeline import Doubt


def ranks_not_logged(communicator: str, there: int, ranks: int) -> Doubt:
    return Doubt(
        "ranks-not-logged",
        f"communicator {communicator}: {there} of {ranks} ranks have a log here, and another may arrive last: "
        "waiting is at least what is given, transfer at most, bus bandwidth at least",
        "give the logs of all ranks",
    )


def calls_not_logged(partly: int, count: int) -> Doubt:
    return Doubt(
        "calls-not-logged",
        f"{partly:,} of {count:,} calls stand in the logs of a part of their ranks only: nobody knows who waited in "
        "them, and they are left out of waiting and transfer",
        "NCCL before 2.30 logs the last call of each interval: set NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS "
        "below the time between collectives; later ones keep NCCL_INSPECTOR_DUMP_COLL_RING_SIZE calls",
    )


def timed_on_host(calls: int, count: int) -> Doubt:
    return Doubt(
        "timed-on-host",
        f"{calls:,} of {count:,} lines are timed by the host's clock and not by the GPU's: times are too long",
        "record with NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=1",
    )


def damaged_lines(count: int) -> Doubt:
    return Doubt(
        "damaged-lines",
        f"{count:,} lines of the logs are not whole, and are left out",
        "one for each process is what a killed program leaves; if there are more, copy the logs again",
    )


def called_twice(count: int) -> Doubt:
    return Doubt(
        "logged-twice",
        f"{count:,} lines tell of a call that another line of the same rank tells of, and are left out",
        "give the logs of one run",
    )
