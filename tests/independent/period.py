"""Steps of a recording without marks, in plain loops: a kernel that comes once in each of many equal cycles."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

Row = dict[str, Any]

LEAST, AGREE, EXPLAINED, COVERED = 5, 0.98, 0.9, 0.5
OPTIMIZERS = ("adam", "sgd", "optimizer", "momentum", "adagrad", "rmsprop")
SMALL, HAND_OVER_NS = 4096, 20_000


def steps(kernels: list[Row], copies: list[Row]) -> SimpleNamespace | None:
    """As `program._steps`; None where nothing repeats, or what repeats holds nothing that a training step holds."""
    kernels = sorted(kernels, key=lambda row: row["start_ns"])
    names = [row["name"] for row in kernels]
    found = []
    for name, count in Counter(names).items():
        if count > LEAST:
            places = [at for at, one in enumerate(names) if one == name]
            if usual := _usual(names, places):
                found.append((usual, places))
    for _, places in sorted(found):
        if _trains(kernels, copies, places):
            return _between(kernels, places)
    return None


def _usual(names: list[str], places: list[int]) -> int:
    """The kernels of a cycle, if cycles that agree explain and cover enough; else 0."""
    cycles = [Counter(names[a:b]) for a, b in zip(places[:-1], places[1:], strict=True)]
    (most, _) = Counter(tuple(sorted(one.items())) for one in cycles).most_common(1)[0]
    usual, size = Counter(dict(most)), sum(count for _, count in most)
    agrees = [(one & usual).total() >= AGREE * max(one.total(), size) for one in cycles]
    if sum(agrees) < LEAST or len(most) < 2:
        return 0
    first, last = agrees.index(True), len(agrees) - agrees[::-1].index(True)
    between = places[last] - places[first]
    explained = sum(one.total() for one, good in zip(cycles, agrees, strict=True) if good) / between
    return size if explained >= EXPLAINED and between >= COVERED * len(names) else 0


def _trains(kernels: list[Row], copies: list[Row], places: list[int]) -> bool:
    """Does each cycle, but for one in ten, hold an optimizer's kernel, or the same number of copies to the GPU?"""
    held = []
    for a, b in zip(places[:-1], places[1:], strict=True):
        if any(name in kernels[at]["name"].lower() for at in range(a, b) for name in OPTIMIZERS):
            held.append(-1)
            continue
        start, end = kernels[a]["start_ns"], kernels[b]["start_ns"]
        inside = [row for row in copies if start <= row["start_ns"] < end]
        held.append(sum(row["kind"] == "h2d" and row["bytes"] >= SMALL for row in inside))
    usual, times = Counter(held).most_common(1)[0]
    return usual != 0 and times >= EXPLAINED * len(held)


def _between(kernels: list[Row], places: list[int]) -> SimpleNamespace:
    """A step begins after the longest pause of its cycle: as many kernels after the anchor as in most cycles."""
    reach = np.maximum.accumulate([row["end_ns"] for row in kernels])
    pause = [0] + [max(0, row["start_ns"] - end) for row, end in zip(kernels[1:], reach.tolist(), strict=False)]
    longest = [max(range(a, b), key=lambda at: (pause[at], -at)) for a, b in zip(places, places[1:], strict=False)]
    offset, times = Counter(at - place for at, place in zip(longest, places, strict=False)).most_common(1)[0]
    begins = [place + offset for place in places[:-1]]
    quiet = 2 * times > len(longest) and np.median([pause[at] for at in begins]) > HAND_OVER_NS
    begins = sorted({0, *(begins if quiet else places)})
    ends = [*begins[1:], len(kernels)]
    return SimpleNamespace(
        all_start_ns=np.array([kernels[at]["start_ns"] for at in begins], np.int64),
        all_last_kernel_end_ns=np.array([reach[at - 1] for at in ends] if quiet else [], np.int64),
        all_number=np.arange(len(begins)),
    )
