"""Two ways to train the same, by turns in the same ranks: options, start, progress and verdict of such a benchmark."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness.launch.environment import allowed
from profiles.ground.files import write_whole
from profiles.runs.cell import setting

ROOT = Path(__file__).resolve().parents[1]
CODES = {"holds": 0, "fails": 1, "not resolved": 2}


def options_of(module: str, description: str | None, *, steps: int, pairs: int) -> argparse.ArgumentParser:
    """What all of them ask. module: as it is called; steps, pairs: the defaults."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="cnn_cifar")
    parser.add_argument("--per-rank-batch", type=int, default=32)
    parser.add_argument("--input-dtype", default="float32", choices=setting("input_dtype").choices)
    parser.add_argument("--precision", default="float32", choices=("float32", "mixed_bfloat16"))
    parser.add_argument("--step", default="fit", choices=("fit", "compiled"))
    parser.add_argument("--steps", type=int, default=steps, help="in a window")
    parser.add_argument("--pairs", type=int, default=pairs)
    parser.add_argument("--json", type=Path, help="write what each window took and the verdict there")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    return parser


def launched(module: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """What rank 0 of the module has written to `--rank`; None where the ranks failed, which they have said."""
    launcher = ["horovodrun", "-np", str(options.ranks)] if options.ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [*launcher, sys.executable, "-m", module, *sys.argv[1:], "--rank", str(found)]
        with subprocess.Popen(command, env=allowed(os.environ), cwd=ROOT) as ranks:
            _watch(ranks, found, options.pairs)
        if ranks.returncode:
            return None
        told: dict[str, Any] = json.loads(found.read_text())
        return told


def _watch(ranks: subprocess.Popen[bytes], found: Path, pairs: int) -> None:
    """Show which pair the ranks are at, until they end."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("building both", total=pairs)
        while ranks.poll() is None:
            if found.exists():
                done = len(json.loads(found.read_text())["pairs"])
                progress.update(task, description="pairs of windows", completed=done)
            time.sleep(0.2)


def over_all_ranks(start_ns: int, end_ns: int) -> float:
    """Seconds from the first rank's start to the last one's end (ranks of one host)."""
    from ringscope.ring.exchange import from_all

    edges = from_all((start_ns, end_ns), "edges")
    return (max(end for _, end in edges) - min(start for start, _ in edges)) / 1e9


def interval(ratios: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """The median, and the 5th and 95th percentile of its bootstrap distribution."""
    draws = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [5, 95])
    return float(np.median(ratios)), float(low), float(high)


def write_verdict(found: dict[str, Any], options: argparse.Namespace, word: str, *ratio: float) -> int:
    """Write `--json`. ratio: its median and the ends of its interval. Exit code 0: it holds, 1: it fails, 2: not
    resolved."""
    if options.json:
        median, *ends = ratio
        facts = {"verdict": word, "median": median, "interval": ends, "options": vars(options), **found}
        write_whole(options.json, json.dumps(facts, default=str) + "\n")
    return CODES[word]
