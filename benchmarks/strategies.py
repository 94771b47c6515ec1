"""Strategies beside each other in one table, in the time of a few launches: they warm up at once, and are timed in
turn.

    python -m benchmarks.strategies --strategies horovod,mirrored,split --at-once 3 --out runs/strategies -- \\
        --models resnet50 --ranks 2 --per-rank-batch 128 --step fit --feeds prefetch --steps 20 --warmup 4

Behind `--` stand options of `ringscope bench`. Each strategy is a bench of its own, which starts, compiles and warms up
beside up to --at-once others, as many as the GPUs' memory holds; then one after the other takes its last warm-up step
and its timed ones while the others wait. What they left is put into one run directory, which `ringscope report` shows.
A launch that is not warm after --deadline seconds is ended, and is missing in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.training import turns
from profiles.runs import strategies as known

AFTER_S = 180.0  # the timed steps of one launch, and what it does afterwards
PATIENCE = ("--launches", "1", "--no-explain", "--stall-limit", "900", "--time-limit", "1200")


class Launch:
    """One strategy's bench."""

    def __init__(self, strategy: str, options: Sequence[str], into: Path) -> None:
        self.strategy, self.path, self._turn = strategy, into / "each" / strategy, into / "turns" / strategy
        self._turn.mkdir(parents=True)
        self._log = (into / f"{strategy}.log").open("w")
        argv = [sys.executable, "-m", "harness", "bench", "--strategy", strategy, *options, *PATIENCE]
        self.process = subprocess.Popen(
            [*argv, "--out", str(self.path)],
            env=os.environ | {turns.VARIABLE: str(self._turn)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def is_warm(self) -> bool:
        return (self._turn / "warm").exists()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def take_turn(self) -> None:
        """Be timed, to the end of the bench."""
        (self._turn / "go").touch()
        try:
            self.process.wait(AFTER_S)
        except subprocess.TimeoutExpired:
            self.end()

    def end(self) -> None:
        if not self.has_ended():
            self.process.terminate()
            self.process.wait()
        self._log.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default="horovod,mirrored,multiworker,split,independent", help="%(default)s")
    parser.add_argument("--at-once", type=int, default=3, help="launches that warm up beside each other: %(default)s")
    parser.add_argument("--deadline", type=float, default=180.0, help="seconds to be warm in: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="a new directory")
    parser.add_argument("options", nargs="*", help="of ringscope bench, behind --")
    given = parser.parse_args(argv)
    names = given.strategies.split(",")
    if unknown := set(names) - set(known.STRATEGIES):
        parser.error(f"no such strategy: {', '.join(sorted(unknown))}; there are {', '.join(known.STRATEGIES)}")
    try:
        given.out.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{given.out} is there already; give --out a new directory")
    began_s = time.monotonic()
    for at in range(0, len(names), given.at_once):
        together(names[at : at + given.at_once], given, began_s)
    missing = merge([given.out / "each" / name for name in names], given.out / "all")
    for name in missing:
        print(f"{name}: nothing was measured; {given.out / name}.log says why", file=sys.stderr)
    shown = subprocess.run([sys.executable, "-m", "profiles", "report", str(given.out / "all")])
    return 1 if missing or shown.returncode else 0


def together(names: Sequence[str], given: argparse.Namespace, began_s: float) -> None:
    """Launch these, and time one after the other once all that will be are warm."""
    launches = [Launch(name, given.options, given.out) for name in names]
    try:
        until_s = time.monotonic() + given.deadline
        while time.monotonic() < until_s and not all(one.is_warm() or one.has_ended() for one in launches):
            time.sleep(0.1)
        for one in launches:
            if one.is_warm() and not one.has_ended():
                one.take_turn()
            else:
                one.end()
            print(
                f"{time.monotonic() - began_s:6.0f} s  {one.strategy}: exit code {one.process.returncode}", flush=True
            )
    finally:
        for one in launches:
            one.end()


def merge(runs: Sequence[Path], into: Path) -> list[str]:
    """Put the launches of run directories into one; the names of those that hold none."""
    whole: dict[str, Any] = {}
    missing = []
    into.mkdir()
    for run in runs:
        if not (run / "sweep.json").exists():
            missing.append(run.name)
            continue
        sweep = json.loads((run / "sweep.json").read_text())
        whole = whole or sweep | {"cells": []}
        whole["cells"] += sweep["cells"]
        for record in run.glob("*/*/record.json"):
            launch = record.parent
            shutil.copytree(launch, into / launch.relative_to(run))
    if whole:
        (into / "sweep.json").write_text(json.dumps(whole, indent=1))
    return missing


if __name__ == "__main__":
    sys.exit(main())
