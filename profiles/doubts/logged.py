"""Doubts about the logs of NCCL's Inspector."""

from __future__ import annotations

from ..model.timeline import Doubt


def ranks_not_logged(communicator: str, there: int, ranks: int) -> Doubt:
    return Doubt(
        "ranks-not-logged",
        f"communicator {communicator}: only {there} of {ranks} ranks have a log here, and a rank without a log may "
        "arrive last: the true waiting may be longer than given, the transfer shorter and the bus bandwidth higher",
        "give the logs of all ranks",
    )


def calls_not_logged(partly: int, count: int) -> Doubt:
    return Doubt(
        "calls-not-logged",
        f"{partly:,} of {count:,} calls are missing from the logs of some of their ranks, so it is unknown which rank "
        "waited: waiting and transfer leave these calls out",
        "NCCL before 2.30 logs only the last call of each interval: set "
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS below the time between collectives; NCCL 2.30 and later "
        "keep NCCL_INSPECTOR_DUMP_COLL_RING_SIZE calls: set it higher",
    )


def timed_on_host(calls: int, count: int) -> Doubt:
    return Doubt(
        "timed-on-host",
        f"the times of {calls:,} of {count:,} logged calls come from the host's clock and not from the GPU's: they "
        "are too long",
        "record with NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=1",
    )


def damaged_lines(count: int) -> Doubt:
    return Doubt(
        "damaged-lines",
        f"{count:,} lines of the logs are incomplete, and are left out",
        "a killed program leaves one incomplete line per process; if there are more, copy the logs again",
    )


def called_twice(count: int) -> Doubt:
    return Doubt(
        "logged-twice",
        f"{count:,} lines repeat a call that the logs of the same rank already hold, and are left out",
        "give the logs of one run only",
    )
