"""Doubts about the logs of NCCL's Inspector and profiler plugin."""

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
        "keep NCCL_INSPECTOR_DUMP_COLL_RING_SIZE calls: set it higher. The profiler plugin keeps as many calls "
        "as its pools hold: set NCCL_PROFILE_COLL_POOL_SIZE and the others (docs/reference/files.md) higher",
    )


def ranks_not_told(ranks: int) -> Doubt:
    return Doubt(
        "ranks-not-told",
        "NCCL's profiler plugin writes neither how many ranks a communicator has nor on which host a process runs: the "
        f"highest rank in these logs counts as the last one (at most {ranks} ranks in a communicator), and processes "
        "with the same number on several hosts are one row",
        "give the logs of all ranks; NCCL's Inspector writes both",
    )


def calls_not_kept(absent: int) -> Doubt:
    gone = f"by their numbers at least {absent:,} calls are missing, and later ones may be" if absent else ""
    return Doubt(
        "calls-not-kept",
        "NCCL's profiler plugin keeps as many calls as its pools hold, and does not write how many it dropped: "
        f"{gone or 'later calls may be missing'}",
        "set NCCL_PROFILE_COLL_POOL_SIZE and the others (docs/reference/files.md) above the number of calls, or take "
        "NCCL's Inspector",
    )


def untimed_calls(untimed: int, count: int) -> Doubt:
    return Doubt(
        "untimed-calls",
        f"the logs do not tell how long {untimed:,} of {count:,} calls ran on the GPU, or how many bytes they passed: "
        "these calls are left out",
        "synchronise the GPU before the program destroys its communicators; record send and receive by NCCL's "
        "Inspector, because up to NCCL 2.30 the profiler plugin does not write when they end",
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
