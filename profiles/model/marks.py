"""Names of the marks (NVTX ranges) that the harness writes and the readers find.

`step N` encloses a step, `wait input` a wait of the host for its next batch, `batch N` the calls that copy the batch of
step N, and `place KIND NAME (FILE:LINE)` a part of the user's code. `rank k of n` and `fed by LOADER` occur once per
process. `paused N ns: why` stands at the end of a pause of an elastic training. `clock N` is the time N on the
process's own clock, by which the samples beside a recording are put on the recording's clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .names import rows_of, wholly

if TYPE_CHECKING:
    from .timeline import Timeline

DOMAIN = "ringscope"
WAIT_INPUT = "wait input"
STEP_PREFIX, BATCH_PREFIX, RANK_PREFIX = "step ", "batch ", "rank "
# Regular expressions that match whole names of marks.
STEP, BATCH = STEP_PREFIX + r"\d{1,18}", BATCH_PREFIX + r"\d{1,18}"
_RANK = re.compile(RANK_PREFIX + r"(\d{1,9}) of (\d{1,9})")
# A process that restarts cannot keep a range open during the pause. So this mark stands at the end of the pause and
# gives its length.
PAUSED = r"paused (\d{1,18}) ns: (.*)"


# Loaders that make batches for `model.fit`.
LOADERS = ("tf.data", "PyDataset", "generator", "arrays", "DataLoader", "Grain")
FED_BY = "fed by "

# A mark around a part of the user's code: kind, name, and the file and line of its definition.
PLACE_PREFIX = "place "
PLACE = r"place (\S+) ([^(]*) \((.*):(\d{1,9})\)"
PIPELINE = ("map", "parallel-map")  # kinds of places that run on threads without Python, throughout a recording
SAMPLES = ".places.json"  # suffix of the file of samples beside a recording
SAMPLES_SCHEMA = "ringscope.places/1"
CLOCK = r"clock (\d{1,18})"


def step(number: int) -> str:
    return f"{STEP_PREFIX}{number}"


def batch(number: int) -> str:
    return f"{BATCH_PREFIX}{number}"


def place(kind: str, name: str, file: str, line: int) -> str:
    return f"place {kind} {name} ({file}:{line})"


def clock(ns: int) -> str:
    return f"clock {ns}"


def paused(ns: int, why: str) -> str:
    return f"paused {ns} ns: {why}"


@dataclass(frozen=True, slots=True)
class Rank:
    number: int
    size: int

    def __str__(self) -> str:
        """The name of the rank's mark."""
        return f"{RANK_PREFIX}{self.number} of {self.size}"


def ranks(timeline: Timeline) -> dict[int, Rank]:
    """Process id -> rank, by the marks of ranks. A process with marks of several ranks is left out. But if its training
    paused and went on with other ranks, its first rank counts."""
    names = timeline.marks["name"].cat
    fits = np.flatnonzero(wholly(names.categories, _RANK.pattern)).tolist()
    by_code = {code: match for code in fits if (match := _RANK.fullmatch(str(names.categories[code])))}
    if not by_code:
        return {}
    codes = names.codes.to_numpy()
    chosen = np.flatnonzero(np.isin(codes, list(by_code)))
    chosen = chosen[np.argsort(timeline.marks["start_ns"].to_numpy()[chosen], kind="stable")]
    told: dict[int, dict[Rank, None]] = {}  # sorted by time
    all_pids = timeline.marks["pid"].to_numpy()
    for pid, code in zip(all_pids[chosen].tolist(), codes[chosen].tolist(), strict=True):
        told.setdefault(pid, {})[Rank(int(by_code[code][1]), int(by_code[code][2]))] = None
    paused: set[int] = set()
    if any(len(ranks) > 1 for ranks in told.values()):
        paused = set(all_pids[rows_of(codes, wholly(names.categories, PAUSED))].tolist())
    return {pid: next(iter(ranks)) for pid, ranks in told.items() if len(ranks) == 1 or pid in paused}


def numbers(timeline: Timeline) -> tuple[int, int] | None:
    """The smallest and the largest N of the marks `step N`; None without such marks."""
    names = timeline.marks["name"].cat
    there = np.unique(names.codes.to_numpy()[rows_of(names.codes.to_numpy(), wholly(names.categories, STEP))])
    found = [int(name.removeprefix(STEP_PREFIX)) for name in names.categories[there].tolist()]
    return (min(found), max(found)) if found else None


def ranks_seen(told: Collection[Rank]) -> tuple[int, int]:
    """(number of ranks recorded, number of ranks in the run), by the marks; (0, 0) without marks."""
    return len({rank.number for rank in told}), max((rank.size for rank in told), default=0)
