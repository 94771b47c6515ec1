"""Doubts about a sweep's numbers."""

from __future__ import annotations

from fractions import Fraction

from ..model.timeline import Doubt


def low_replication(few: int, cells: int, least: int) -> Doubt:
    return Doubt(
        "low-replication",
        f"{few} of {cells} cells have fewer than {least} launches, too few to know how much launches of a cell differ",
        "run more launches: ringscope bench --resume --launches 5",
    )


def over_100_percent(cells: str) -> Doubt:
    return Doubt(
        "over-100-percent",
        f"{cells}: N ranks are more than N times as fast as one; something slowed the one-rank cell down",
        "look at the one-rank cell: its input wait, its clocks, and other programs that ran beside it",
    )


def clock_offset(launch: str, host: str, offset_ms: float, share: float) -> Doubt:
    return Doubt(
        "clock-offset",
        f"{launch}: {host}'s clock is {offset_ms:+.3f} ms from rank 0's, {100 * share:.2f} % of the window; the "
        "difference, as a barrier of all ranks measured it, was subtracted",
        "synchronise the hosts' clocks (chrony), or measure over more --steps",
    )


def windows_apart(launch: str, apart_ms: float, share: float) -> Doubt:
    return Doubt(
        "windows-apart",
        f"{launch}: the time from the first rank's start to the last rank's end is {apart_ms:.1f} ms "
        f"({100 * share:.0f} %) longer than any rank's own window: a clock was set meanwhile, or a rank was held up; "
        "samples/s are too low by this share",
        "run that cell again, with synchronised clocks of the hosts (chrony)",
    )


def more_ranks_than_cores(cell: str, ranks: int, cores: int) -> Doubt:
    return Doubt(
        "more-ranks-than-cores",
        f"{cell}: {ranks} ranks share {cores} usable cores of a host, and take turns; under mpirun a waiting rank "
        "gives its core away, which a rank with its own core does not do",
        f"measure with at most {cores} ranks per host; in a container or a job, ask for more cores",
    )


def unlike_machines(kinds: int) -> Doubt:
    return Doubt(
        "unlike-machines",
        f"the launches ran on {kinds} different machines or sets of libraries",
        "compare only launches of one machine and one set of libraries; after a change of either use another --out",
    )


def shared_cores() -> Doubt:
    return Doubt(
        "shared-cores",
        "no GPU: ranks share this host's cores, so less than 100 % is expected",
        "use this sweep to compare feeds and kinds of steps; measure scaling where each rank has a GPU",
    )


def not_explained(cell: str, why: str) -> Doubt:
    return Doubt(
        "not-explained",
        f"{cell}: the cause of its step time is not known: {why}",
        "run the launches that explain it again: ringscope bench --resume --explain --retry-failed",
    )


def recorded_unlike_timed(cell: str, recorded_ns: Fraction, timed_ns: Fraction, *, corrected: bool) -> Doubt:
    """`corrected`: True if the idle time was fitted to the timed steps."""
    text = f"{cell}: a recorded step takes {float(recorded_ns / timed_ns):.2f} x as long as a timed one; "
    if corrected:
        return Doubt(
            "recorded-unlike-timed",
            text + "GPU work is from the recording; idle is the rest of the timed step",
            "trust which cause of idle time is larger, not how large: the profiler makes the host slower",
        )
    return Doubt(
        "recorded-unlike-timed",
        text + "the losses describe the recorded steps, not the timed ones",
        "trust which loss of time is larger, not how large; for sizes record more steps: ringscope record --steps 50",
    )


def not_monotone(failing: int, fitting: int) -> Doubt:
    return Doubt(
        "fits-not-monotone",
        f"{failing:,} samples per rank failed to fit at least once, though {fitting:,} fitted at least once: memory "
        "differs from launch to launch, so the answer is a batch below both",
        "use a batch that is some percent smaller; look which other programs take memory there (nvidia-smi, top)",
    )


def fits_by_failure(batch: int, why: str) -> Doubt:
    return Doubt(
        "fits-by-failure",
        f"{batch:,} samples per rank failed twice, and count as not fitting though the error does not name memory: "
        f"{why}",
        "if the cause is not memory, remove it and search again; else stay some percent below the answer",
    )
