"""How often `ringscope gate --history` is wrong, on simulated histories: python -m benchmarks.gate_histories

A false alarm is a run that is called slower though nothing but noise and drift made it so. A step is 3 % more time from
one run on, after 20 or 40 runs; it is found if one of its first 5 runs is called slower. Beside it stands the limit of
a baseline, which is the first run and 5 % more. Noise is 1 % (its standard deviation) unless the row says otherwise.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from profiles.gate.change import FIXED, Found, each

Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]
ASKED = 1 / 200
STEP, WITHIN, LASTING = 0.03, 5, 60
KINDS: dict[str, Noise] = {
    "normal": lambda dice, runs: dice.normal(0, 0.01, runs),
    "normal, 3 %": lambda dice, runs: dice.normal(0, 0.03, runs),
    "heavy tails (Student, 3)": lambda dice, runs: dice.standard_t(3, runs) * 0.01 / math.sqrt(3),
    "heavy tails (Laplace)": lambda dice, runs: dice.laplace(0, 0.01 / math.sqrt(2), runs),
    "slow runs only (exponential)": lambda dice, runs: dice.exponential(0.01, runs),
    "drift of 0.02 % a run": lambda dice, runs: dice.normal(0, 0.01, runs) + 0.0002 * np.arange(runs),
    "drift of 0.05 % a run": lambda dice, runs: dice.normal(0, 0.01, runs) + 0.0005 * np.arange(runs),
    "random walk of 0.1 % a run": lambda dice, runs: (
        dice.normal(0, 0.01, runs) + np.cumsum(dice.normal(0, 0.001, runs))
    ),
}


def slower(logs: Sequence[float], found: Sequence[Found]) -> list[bool]:
    """Which runs the gate breaks on."""
    return [
        bool(one.since) and np.mean([logs[at] for at in one.since]) > np.mean([logs[at] for at in one.before])
        for one in found
    ]


def fixed(logs: NDArray[np.float64]) -> list[bool]:
    return list(logs - logs[0] > math.log(1 + FIXED))


def alarms(noise: Noise, histories: int, seed: int = 7) -> tuple[float, float]:
    """The shares of runs on which the gate with a history breaks, and the one with a baseline."""
    dice = np.random.default_rng(seed)
    ours, theirs = [], []
    for _ in range(histories):
        logs = noise(dice, LASTING)
        ours += slower(logs, each(np.exp(logs)))[1:]
        theirs += fixed(logs)[1:]
    return float(np.mean(ours)), float(np.mean(theirs))


def steps(noise: Noise, histories: int, before: int, seed: int = 8) -> tuple[float, float, float]:
    """The shares of steps found in time by both gates, and of the places that ours names to one run right."""
    dice = np.random.default_rng(seed)
    ours, theirs, places = [], [], []
    for _ in range(histories):
        logs = noise(dice, before + WITHIN)
        logs[before:] += math.log(1 + STEP)
        found = each(np.exp(logs))
        broken = slower(logs, found)[before:]
        ours.append(any(broken))
        theirs.append(any(fixed(logs)[before:]))
        if any(broken):
            places.append(abs(found[before + broken.index(True)].since[0] - before) <= 1)
    return float(np.mean(ours)), float(np.mean(theirs)), float(np.mean(places or [False]))


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=60, help="of each kind")
    histories = parser.parse_args().histories
    print(f"{histories} histories of {LASTING} runs a row; asked: false alarms <= {ASKED:.2%} of runs\n")
    print("| noise | false alarms | of fixed 5 % | 3 % found in 5 runs, after 20 | after 40 | by fixed 5 % | place |")
    print("|---|---|---|---|---|---|---|")
    for name, noise in KINDS.items():
        ours, theirs = alarms(noise, histories)
        few, _, _ = steps(noise, histories, 20)
        many, by_fixed, places = steps(noise, histories, 40)
        row = f"{ours:.2%} | {theirs:.2%} | {few:.0%} | {many:.0%} | {by_fixed:.0%} | {places:.0%}"
        print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
