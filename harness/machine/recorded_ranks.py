"""Choose the ranks of a job that are recorded: all of them, the first of each host, or some by number."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.ground.errors import RingscopeError

ALL, FIRST_PER_HOST = "all", "first-per-host"
# Environment variable: "0" in a rank that must not be recorded. If no profiler stands before the rank's command, the
# rank's own code reads the variable.
RECORDED = "RINGSCOPE_RECORDED"
# Environment variable of a rank: the choice itself, for the ranks that the script starts.
SAMPLE = "RINGSCOPE_RECORD_RANKS"


def check(sample: str, ranks: int) -> None:
    """Raise RingscopeError if `sample` is not a valid choice among `ranks` ranks."""
    if sample in (ALL, FIRST_PER_HOST):
        return
    words = sample.split(",")
    if not all(word.isdigit() for word in words):
        raise RingscopeError(f"--record-ranks {sample}: give all, first-per-host, or numbers such as 0,8,16")
    beyond = [word for word in words if int(word) >= ranks]
    if beyond:
        raise RingscopeError(f"--record-ranks {sample}: there is no rank {beyond[0]} of {ranks}; they count from 0")


def holds(sample: str, rank: int, local_rank: int) -> bool:
    """True if the choice `sample` holds this rank."""
    if sample == FIRST_PER_HOST:
        return local_rank == 0
    return sample == ALL or rank in map(int, sample.split(","))


def count(sample: str, ranks: int, slots: Sequence[int]) -> int:
    """The number of ranks that are recorded. slots: ranks on each host; empty for this host alone."""
    if sample == ALL:
        return ranks
    return max(1, len(slots)) if sample == FIRST_PER_HOST else len(set(sample.split(",")))
