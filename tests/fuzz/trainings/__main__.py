"""Random trainings on two ranks against one rank on the joined batches: python -m tests.fuzz.trainings [--count 200]

Each is equal, bit for bit between the ranks and within rounding to one rank, or refused in one line, or no training:
plain Keras refuses it too. Exit code 1 and the settings where one is none of these; `--only NUMBER --seed SEED`
repeats it, `--first` goes on elsewhere."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.harness.running import ROOT, run_python

from .combination import draw, tolerance

Trained = dict[str, Any]  # what train.py writes of a training, by name
AT_A_TIME = 10  # trainings of one start of the ranks
LIMIT_S = 480.0  # for those, on a machine that trains something else too


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="default: 200")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="of those trainings, default: 0")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="default: another each time")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these alone, their settings shown")
    parser.add_argument("--out", type=Path, help="keep what the ranks write here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        numbers = given.only or range(given.first, given.first + given.count)
        minutes = len(numbers) // 15 + 1
        print(f"{len(numbers)} trainings of seed {given.seed} on two ranks and on one: some {minutes} min", flush=True)
        verdicts = trained(out, numbers, given.seed)
    for number, verdict in verdicts.items():
        if given.only or verdict.startswith("WRONG"):
            print(f"{number}: {verdict}\n   {json.dumps(draw(number, given.seed))}")
    kinds = Counter(verdict.partition(":")[0] for verdict in verdicts.values())
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    return int("WRONG" in kinds)


def trained(out: Path, numbers: Sequence[int], seed: int) -> dict[int, str]:
    """By number `equal`, `refused: why`, `no training: why plain Keras refuses it` or `WRONG: how`."""
    verdicts = tried(out, {1: numbers, 2: numbers}, seed)
    verdicts |= {n: compared(out, n, tolerance(draw(n, seed))) for n in numbers if n not in verdicts}
    doubtful = [n for n in numbers if verdicts[n].startswith("no training")]
    # A loss scale that is wrong on two ranks may be as wrong on one.
    scaled = [n for n in numbers if verdicts[n] == "equal" and draw(n, seed)["overflow"]]
    scaled = [n for n in scaled if not draw(n, seed)["distribute"]]
    if doubtful or scaled:  # on one rank ring has its hand in it too
        plain = out / "plain"
        plain.mkdir(exist_ok=True)
        hung = tried(plain, {1: doubtful + scaled}, seed, "plain")
        for n in doubtful:
            if n in hung or not isinstance(told(plain, n, 1, 0), str):
                verdicts[n] = f"WRONG: {verdicts[n]}, but plain Keras trains it"
        for n in scaled:
            verdicts[n] = hung.get(n) or against_plain(
                told(out, n, 1, 0), told(plain, n, 1, 0), tolerance(draw(n, seed))
            )
    return {n: verdicts[n] for n in numbers}


def tried(out: Path, left: dict[int, Sequence[int]], seed: int, *words: str) -> dict[int, str]:
    """Train those numbers on so many ranks; returns the verdicts on those of which a rank has told nothing."""
    hung: dict[int, str] = {}
    while any(left.values()):
        jobs: list[dict[str, Any]] = []
        for ranks, waiting in left.items():
            for begin in range(0, len(waiting), AT_A_TIME):
                given = [str(out), str(seed), *words, *map(str, waiting[begin : begin + AT_A_TIME])]
                script = str(Path(__file__).with_name("train.py"))
                name = f"trainings{waiting[begin]}"
                jobs.append({"name": name, "ranks": ranks, "script": script, "words": given, "limit_s": LIMIT_S})
        jobs.sort(key=lambda job: job["name"])
        together = ROOT / "tests" / "harness" / "together.py"
        done = run_python(str(together), str(out), json.dumps(jobs), timeout_s=LIMIT_S * len(jobs))
        assert done.returncode == 0, done.stdout + done.stderr
        again: dict[int, list[int]] = {ranks: [] for ranks in left}
        for job in jobs:
            ended = json.loads((out / "codes.json").read_text())[f"{job['name']}.{job['ranks']}"]
            numbers = map(int, job["words"][2 + len(words) :])
            missing = [n for n in numbers if not is_told(out, n, job["ranks"])]
            if missing and ended != [0] * job["ranks"]:
                # The first of them has ended the ranks; the others have not been tried.
                hung[missing[0]] = _ending(out, job, ended, missing[0])
                again[job["ranks"]] += missing[1:]
            elif missing:
                hung |= dict.fromkeys(missing, "WRONG: a rank went on without it")
        left = dict(again)
    return hung


def is_told(out: Path, number: int, ranks: int) -> bool:
    return all(any(out.glob(f"{number}.{ranks}.{rank}.*")) for rank in range(ranks))


def _ending(out: Path, job: dict[str, Any], codes: list[int], number: int) -> str:
    said = [(out / f"{job['name']}.{job['ranks']}.{rank}.log").read_text() for rank in range(job["ranks"])]
    lines = [line for text in said for line in text.splitlines() if line.startswith("ring: rank")]
    if all(code > 0 for code in codes) and lines:
        return f"refused: {lines[-1]}"
    errors = [path.read_text() for path in sorted(out.glob(f"{number}.{job['ranks']}.*.txt"))]
    if errors and any("left the training" in line for line in lines):  # one rank's data has it, and ring ends the other
        kind = "refused" if errors[0].startswith("RingscopeError") else "no training"
        return f"{kind}: {errors[0].splitlines()[0]}"
    return f"WRONG: ended {codes}: " + " | ".join(text.strip().splitlines()[-1] for text in said if text.strip())


def compared(out: Path, number: int, tolerance: float) -> str:
    ranks = [told(out, number, 2, 0), told(out, number, 2, 1)]
    alone = told(out, number, 1, 0)
    refusals = [each for each in ranks if isinstance(each, str)]
    if refusals:
        ours = any(each.startswith("RingscopeError") for each in refusals)
        one_line = all("\n" not in each.strip() for each in refusals)
        if len(refusals) == 2 and isinstance(alone, str) and not alone.startswith("RingscopeError"):
            return f"no training: {alone.splitlines()[0]}"
        if len(refusals) == 2 and ours and one_line:
            return f"refused: {refusals[0]}"
        return f"WRONG: {refusals} where one rank says {alone if isinstance(alone, str) else 'nothing'}"
    if isinstance(alone, str):
        return f"WRONG: one rank refuses ({alone}), two do not"
    one, other = ranks
    assert not isinstance(one, str) and not isinstance(other, str)
    for name in one:
        if not np.array_equal(one[name], other[name], equal_nan=True):
            return f"WRONG: {name} differs between the ranks"
    if one.keys() != alone.keys():
        return f"WRONG: {sorted(one.keys() ^ alone.keys())} on one side only"
    return apart([name for name in one if not name.startswith("optimizer")], one, alone, tolerance)


def against_plain(ours: Trained | str, plain: Trained | str, tolerance: float) -> str:
    """The verdict on one rank's weights and loss scale beside those of Keras without ring."""
    if isinstance(ours, str) or isinstance(plain, str):
        return f"WRONG: plain Keras says {plain if isinstance(plain, str) else 'nothing'}"
    verdict = apart([name for name in plain if name.startswith("ended") or name == "scale"], ours, plain, tolerance)
    return verdict.replace("one rank", "plain Keras")


def apart(names: Sequence[str], one: Trained, alone: Trained, tolerance: float) -> str:
    """The verdict on those numbers. Float16 may overflow to NaN, also in plain Keras."""
    moved = max(
        np.nanmax(np.abs(one[f"ended {name[6:]}"] - one[name]), initial=0.0) for name in one if name.startswith("began")
    )
    for name in names:
        unlike = np.abs(one[name].astype(float) - alone[name].astype(float))
        off = float(unlike[~(np.isnan(one[name]) & np.isnan(alone[name]))].max(initial=0.0))
        size = max(moved, float(np.nanmax(np.abs(alone[name]), initial=0.0))) if not name.startswith("ended") else moved
        if not off <= tolerance * size + 1e-7:
            return f"WRONG: {name} is {off:.2g} from that of one rank, where training moved weights by {moved:.2g}"
    return "equal"


def told(out: Path, number: int, ranks: int, rank: int) -> Trained | str:
    path = out / f"{number}.{ranks}.{rank}.npz"
    if path.exists():
        with np.load(path) as found:
            return {name: found[name] for name in found.files}
    return path.with_suffix(".txt").read_text()


if __name__ == "__main__":
    sys.exit(main())
