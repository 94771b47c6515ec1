"""How often `ringscope gate --history` is wrong, on simulated histories: python -m benchmarks.gate_histories

A false alarm is a run that is called slower though nothing but noise and drift made it so. A step is 3 % more time from
one run on, after 20 or 40 runs; it is found if one of its first 5 runs is called slower. Beside it stands the limit of
a baseline, which is the first run and 5 % more. Noise is 1 % (its standard deviation) unless the row says otherwise.
The constants of profiles/gate/change.py were chosen by the kinds in KINDS, with other seeds, and not by those in NEW.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from profiles.gate.change import FIXED, Found, each

Logs = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Logs]
ASKED = 1 / 200
SCATTER, STEP, WITHIN, LASTING = 0.01, 0.03, 5, 60


def normal(dice: np.random.Generator, runs: int) -> Logs:
    return dice.normal(0, SCATTER, runs)


def leaning(dice: np.random.Generator, runs: int, on_the_last: float) -> Logs:
    """Each run depends on the one before: AR(1)."""
    logs = normal(dice, runs)
    for at in range(1, runs):
        logs[at] = on_the_last * logs[at - 1] + math.sqrt(1 - on_the_last**2) * logs[at]
    return logs


def lognormal(dice: np.random.Generator, runs: int, shape: float) -> Logs:
    spread = math.sqrt(math.expm1(shape**2) * math.exp(shape**2))
    return dice.lognormal(0, shape, runs) * SCATTER / spread


def dipped(dice: np.random.Generator, runs: int) -> Logs:
    """Five runs of 30 to 35 are faster; the ones after are as before, and not slower."""
    logs = normal(dice, runs)
    logs[30:35] -= math.log(1 + STEP)
    return logs


def stretches(dice: np.random.Generator, runs: int) -> Logs:
    """Runs scatter little or much, for ten runs or so at a time."""
    much = np.cumsum(dice.random(runs) < 1 / 10) % 2
    return normal(dice, runs) * np.where(much, 1.5, 0.5)


KINDS: dict[str, Noise] = {
    "normal": normal,
    "normal, 3 %": lambda dice, runs: 3 * normal(dice, runs),
    "heavy tails (Student, 3)": lambda dice, runs: dice.standard_t(3, runs) * SCATTER / math.sqrt(3),
    "heavy tails (Laplace)": lambda dice, runs: dice.laplace(0, SCATTER / math.sqrt(2), runs),
    "slow runs only (exponential)": lambda dice, runs: dice.exponential(SCATTER, runs),
    "drift of 0.02 % a run": lambda dice, runs: normal(dice, runs) + 0.0002 * np.arange(runs),
    "drift of 0.05 % a run": lambda dice, runs: normal(dice, runs) + 0.0005 * np.arange(runs),
    "random walk of 0.1 % a run": lambda dice, runs: normal(dice, runs) + np.cumsum(dice.normal(0, 0.001, runs)),
    "lognormal, shape 0.5": lambda dice, runs: lognormal(dice, runs, 0.5),
    "lognormal, shape 1": lambda dice, runs: lognormal(dice, runs, 1.0),
    "uniform": lambda dice, runs: dice.uniform(-1, 1, runs) * SCATTER * math.sqrt(3),
    "depends on the run before by 0.2": lambda dice, runs: leaning(dice, runs, 0.2),
    "depends on the run before by 0.5": lambda dice, runs: leaning(dice, runs, 0.5),
    "two machines, 4 % apart": lambda dice, runs: normal(dice, runs) / 3 + 0.04 * (dice.random(runs) < 0.5),
    "each seventh run 2 % slower": lambda dice, runs: normal(dice, runs) + 0.02 * (np.arange(runs) % 7 == 0),
    "swings by 0.5 % in 40 runs": lambda dice, runs: (
        normal(dice, runs) + 0.005 * np.sin(np.arange(runs) * math.tau / 40)
    ),
    "1 run in 30 slower by 5 to 25 %": lambda dice, runs: (
        normal(dice, runs) + dice.uniform(0.05, 0.25, runs) * (dice.random(runs) < 1 / 30)
    ),
    "faster for five runs, and back": dipped,
}
NEW: dict[str, Noise] = {
    "scatter of 0.5 or 1.5 %, in stretches": stretches,
    "slow runs only (Pareto, 3)": lambda dice, runs: dice.pareto(3, runs) * SCATTER / math.sqrt(0.75),
}


def slower(logs: Sequence[float] | Logs, found: Sequence[Found]) -> list[bool]:
    """Which runs the gate breaks on."""
    return [
        bool(one.since) and np.mean([logs[at] for at in one.since]) > np.mean([logs[at] for at in one.before])
        for one in found
    ]


def fixed(logs: Logs) -> list[bool]:
    return list(logs - logs[0] > math.log(1 + FIXED))


def alarms(noise: Noise, histories: int, seed: int = 7) -> tuple[float, float, float, float]:
    """The shares of runs on which the gate with a history breaks and the one with a baseline, the first's standard
    error, and the share of runs that the gate with a history doubts."""
    dice = np.random.default_rng(seed)
    ours, theirs, doubts = [], [], []
    for _ in range(histories):
        logs = noise(dice, LASTING)
        found = each(np.exp(logs))
        ours.append(float(np.mean(slower(logs, found)[1:])))
        theirs += fixed(logs)[1:]
        doubts += [one.doubted for one in found][1:]
    error = float(np.std(ours, ddof=1)) / math.sqrt(histories)  # runs of a history depend on each other
    return float(np.mean(ours)), float(np.mean(theirs)), error, float(np.mean(doubts))


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


def most_found(before: int, *, drift: bool, scatter: float = SCATTER) -> float:
    """The share of steps that the most powerful unbiased test of one look finds five runs after it, with ASKED of false
    alarms: Student's t, whose noise is normal and independent. drift: where there may be one of any slope."""
    from scipy import stats

    runs = np.arange(before + WITHIN)
    columns = [np.ones(len(runs)), runs >= before, *([runs] if drift else [])]
    table = np.column_stack(columns).astype(float)
    error = scatter * math.sqrt(float(np.linalg.inv(table.T @ table)[1, 1]))
    free = len(runs) - table.shape[1]
    return float(stats.nct.sf(stats.t.isf(ASKED, free), free, math.log(1 + STEP) / error))


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=400, help="of each kind")
    parser.add_argument("--seed", type=int, default=9201)
    given = parser.parse_args()
    print(f"{given.histories} histories of {LASTING} runs a row; asked: false alarms <= {ASKED:.2%} of runs\n")
    found = "3 % found in 5 runs, after 20 | after 40 | by fixed 5 % | place"
    print(f"| noise | false alarms | doubts | of fixed 5 % | {found} |")
    print("|---|---|---|---|---|---|---|---|")
    for name, noise in (KINDS | NEW).items():
        ours, theirs, error, doubts = alarms(noise, given.histories, given.seed)
        few, _, _ = steps(noise, given.histories, 20, given.seed + 1)
        many, by_fixed, places = steps(noise, given.histories, 40, given.seed + 2)
        row = f"{ours:.2%} ± {error:.2%} | {doubts:.2%} | {theirs:.2%}"
        print(f"| {name} | {row} | {few:.0%} | {many:.0%} | {by_fixed:.0%} | {places:.0%} |", flush=True)
    print("\nAt most, by one test of five runs with so many false alarms, in normal noise:")
    for drift, known in ((False, "no drift is possible"), (True, "a drift may be there")):
        print(f"{known}: {most_found(20, drift=drift):.1%} after 20 runs, {most_found(40, drift=drift):.1%} after 40")


if __name__ == "__main__":
    main()
