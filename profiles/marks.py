"""The marks that the harness writes (NVTX ranges) and the readers find again: every name is spelled here alone.

`step N` around a step, `wait input` where the host waits for its next batch, `batch N` around the calls that copy the
batch of step N, `rank k of n` once per process.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .timeline import Timeline

DOMAIN = "ringscope"
WAIT_INPUT = "wait input"
STEP_PREFIX, BATCH_PREFIX, RANK_PREFIX = "step ", "batch ", "rank "
# Whole names, as regular expressions.
STEP, BATCH = STEP_PREFIX + r"\d+", BATCH_PREFIX + r"\d+"
_RANK = re.compile(RANK_PREFIX + r"(\d+) of (\d+)")


def step(number: int) -> str:
    return f"{STEP_PREFIX}{number}"


def batch(number: int) -> str:
    return f"{BATCH_PREFIX}{number}"


@dataclass(frozen=True, slots=True)
class Rank:
    number: int
    size: int

    def __str__(self) -> str:
        """The mark's name."""
        return f"{RANK_PREFIX}{self.number} of {self.size}"


def ranks(timeline: Timeline) -> dict[int, Rank]:
    """The rank of each process id that marks tell. A process marked as several ranks is none of them."""
    names = timeline.marks["name"].cat
    by_code = {code: match for code, name in enumerate(names.categories) if (match := _RANK.fullmatch(str(name)))}
    if not by_code:
        return {}
    codes = names.codes.to_numpy()
    chosen = np.flatnonzero(np.isin(codes, list(by_code)))
    told: dict[int, set[Rank]] = {}
    pids = timeline.marks["pid"].to_numpy()[chosen]
    for pid, code in zip(pids.tolist(), codes[chosen].tolist(), strict=True):
        told.setdefault(pid, set()).add(Rank(int(by_code[code][1]), int(by_code[code][2])))
    return {pid: ranks.pop() for pid, ranks in told.items() if len(ranks) == 1}


def ranks_seen(told: Collection[Rank]) -> tuple[int, int]:
    """(ranks that are recorded here, ranks of the run) of those that marks tell; (0, 0) where they do not."""
    return len({rank.number for rank in told}), max((rank.size for rank in told), default=0)
