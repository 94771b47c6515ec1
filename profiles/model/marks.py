"""The marks that the harness writes (NVTX ranges) and the readers find again: every name is spelled here alone.

`step N` around a step, `wait input` where the host waits for its next batch, `batch N` around the calls that copy the
batch of step N, `rank k of n` once per process, `fed by PyDataset` what makes its batches, `paused N ns: why` where an
elastic training goes on; `place KIND NAME (FILE:LINE)` around a part of the user's own code, and `clock N` at the time
N of the process's own clock, by which the samples beside a recording come onto the recording's.
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
# Whole names, as regular expressions.
STEP, BATCH = STEP_PREFIX + r"\d{1,18}", BATCH_PREFIX + r"\d{1,18}"
_RANK = re.compile(RANK_PREFIX + r"(\d{1,9}) of (\d{1,9})")
# A process that begins again cannot leave a range open meanwhile: its mark stands at the pause's end, and says its
# length.
PAUSED = r"paused (\d{1,18}) ns: (.*)"


# The loaders that make batches of `model.fit`.
LOADERS = ("tf.data", "PyDataset", "generator", "arrays", "DataLoader", "Grain")
FED_BY = "fed by "

# Parts of the user's code: what they are, their name, and where they are defined.
PLACE_PREFIX = "place "
PLACE = r"place (\S+) ([^(]*) \((.*):(\d{1,9})\)"
PIPELINE = ("map", "parallel-map")  # kinds of places that other threads run in no Python, throughout a recording
SAMPLES = ".places.json"  # what the name of the file of samples beside a recording ends in
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
        """The mark's name."""
        return f"{RANK_PREFIX}{self.number} of {self.size}"


def ranks(timeline: Timeline) -> dict[int, Rank]:
    """The rank of each process id that marks tell. A process marked as several ranks is none of them, unless its
    training paused and went on with other numbers: then it is what it was first."""
    names = timeline.marks["name"].cat
    fits = np.flatnonzero(wholly(names.categories, _RANK.pattern)).tolist()
    by_code = {code: match for code in fits if (match := _RANK.fullmatch(str(names.categories[code])))}
    if not by_code:
        return {}
    codes = names.codes.to_numpy()
    chosen = np.flatnonzero(np.isin(codes, list(by_code)))
    chosen = chosen[np.argsort(timeline.marks["start_ns"].to_numpy()[chosen], kind="stable")]
    told: dict[int, dict[Rank, None]] = {}  # in order of time
    all_pids = timeline.marks["pid"].to_numpy()
    for pid, code in zip(all_pids[chosen].tolist(), codes[chosen].tolist(), strict=True):
        told.setdefault(pid, {})[Rank(int(by_code[code][1]), int(by_code[code][2]))] = None
    paused: set[int] = set()
    if any(len(ranks) > 1 for ranks in told.values()):
        paused = set(all_pids[rows_of(codes, wholly(names.categories, PAUSED))].tolist())
    return {pid: next(iter(ranks)) for pid, ranks in told.items() if len(ranks) == 1 or pid in paused}


def numbers(timeline: Timeline) -> tuple[int, int] | None:
    """The first and last number of marks `step N`; None: it has none."""
    names = timeline.marks["name"].cat
    there = np.unique(names.codes.to_numpy()[rows_of(names.codes.to_numpy(), wholly(names.categories, STEP))])
    found = [int(name.removeprefix(STEP_PREFIX)) for name in names.categories[there].tolist()]
    return (min(found), max(found)) if found else None


def ranks_seen(told: Collection[Rank]) -> tuple[int, int]:
    """(ranks that are recorded here, ranks of the run), as marks tell; (0, 0) if no mark does."""
    return len({rank.number for rank in told}), max((rank.size for rank in told), default=0)
