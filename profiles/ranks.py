"""Which process was which rank, as the harness's marks `rank k of n` tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .timeline import Timeline

_MARK = re.compile(r"rank (\d+) of (\d+)")


@dataclass(frozen=True, slots=True)
class Rank:
    number: int
    size: int


def marked(timeline: Timeline) -> dict[int, Rank]:
    """By process id. One that marks itself as several ranks is none of them."""
    categories = timeline.marks["name"].cat.categories
    by_code = {code: match for code, name in enumerate(categories) if (match := _MARK.fullmatch(str(name)))}
    if not by_code:
        return {}
    codes = timeline.marks["name"].cat.codes
    chosen = codes.isin(by_code)
    told: dict[int, set[Rank]] = {}
    for pid, code in zip(timeline.marks["pid"][chosen].tolist(), codes[chosen].tolist(), strict=True):
        told.setdefault(pid, set()).add(Rank(int(by_code[code][1]), int(by_code[code][2])))
    return {pid: ranks.pop() for pid, ranks in told.items() if len(ranks) == 1}


def seen_of(timelines: Sequence[Timeline]) -> tuple[int, int]:
    """(ranks that are recorded here, ranks of the run), as far as marks tell; (0, 0) where they do not."""
    told = {rank for timeline in timelines for rank in marked(timeline).values()}
    return len({rank.number for rank in told}), max((rank.size for rank in told), default=0)
