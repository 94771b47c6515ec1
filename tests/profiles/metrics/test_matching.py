"""Which calls are one collective: the quick way for many GPUs against the definition, pair by pair."""

from __future__ import annotations

import random

import numpy as np
import pytest

from profiles.metrics import matching
from profiles.metrics.matching import NEVER, matched

US = 1_000


def by_definition(starts, ends, residual_ns, values=None):
    """Plain Python: each other's nearest in the end (the earlier of two), overlapping, and close enough. Of each call
    how many took part, and the largest of the others' values (their starts, if none are given)."""
    values = starts if values is None else values

    def nearest(to, among):
        return min(range(len(among)), key=lambda place: (abs(among[place] - to), place), default=None)

    found = []
    for mine, (start, end) in enumerate(zip(starts, ends, strict=True)):
        told = []
        for place in range(len(end)):
            ranks, latest = 1, NEVER
            for other, (other_start, other_end) in enumerate(zip(starts, ends, strict=True)):
                there = nearest(end[place], other_end) if other != mine else None
                if there is None or nearest(other_end[there], end) != place:
                    continue
                shorter = min(end[place] - start[place], other_end[there] - other_start[there])
                overlap = start[place] < other_end[there] and other_start[there] < end[place]
                if overlap and abs(end[place] - other_end[there]) <= max(shorter // 2, residual_ns):
                    ranks, latest = ranks + 1, max(latest, int(values[other][there]))
            told.append((ranks, latest))
        found.append(told)
    return found


def made(chance, gpus, calls, *, apart_us, missing=0.0, spread_us=3, late_us=200):
    """Calls that end together but for the clocks' noise; some GPUs miss some."""
    starts, ends = [[] for _ in range(gpus)], [[] for _ in range(gpus)]
    now = 0
    for _ in range(calls):
        now += chance.randint(apart_us // 2, apart_us) * US
        for gpu in range(gpus):
            if chance.random() >= missing:
                end = now + chance.randint(0, spread_us * US)
                starts[gpu].append(end - chance.randint(1, late_us * US))
                ends[gpu].append(end)
    order = [np.argsort(one, kind="stable") for one in ends]
    as_arrays = [[np.array(one, np.int64)[at] for one, at in zip(side, order, strict=True)] for side in (starts, ends)]
    return as_arrays[0], as_arrays[1]


@pytest.mark.parametrize("seed", range(40))
def test_bunches_say_what_each_pair_says(seed):
    chance = random.Random(seed)
    starts, ends = made(
        chance,
        chance.randint(2, 7),
        chance.randint(1, 12),
        apart_us=chance.choice([40, 400, 4_000]),
        missing=chance.choice([0, 0, 0.1, 0.5]),
        spread_us=chance.choice([0, 3, 60]),
    )
    residual = chance.choice([0, 5 * US])
    expected = by_definition([one.tolist() for one in starts], [one.tolist() for one in ends], residual)
    found = matched(starts, ends, residual)
    latest = found.latest(starts)
    told = [list(zip(*(one.tolist() for one in each), strict=True)) for each in zip(found.ranks, latest, strict=True)]
    assert told == expected
    # Of any other values as well, such as when each rank had handed its part over.
    values = [np.array([chance.randint(0, 3) for _ in one], np.int64) for one in starts]
    expected = by_definition([one.tolist() for one in starts], [one.tolist() for one in ends], residual, values)
    assert [one.tolist() for one in found.latest(values)] == [[latest for _, latest in one] for one in expected]


@pytest.mark.parametrize("missing", [0, 0.05])
def test_calls_of_hundreds_of_gpus_end_in_bunches(missing, monkeypatch):
    starts, ends = made(random.Random(1), 200, 30, apart_us=9_000, missing=missing)
    monkeypatch.setattr(matching, "_Pairs", None)  # 200 x 199 pairs take many seconds
    assert {int(one.max()) for one in matched(starts, ends, 0).ranks} <= set(range(150, 201))
