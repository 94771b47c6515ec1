"""benchmarks.measure times the parts that there are, and adds up what overlaps once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import PARTS, together
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from tests.recordings import ROOT


def test_every_part_of_measuring_is_timed(tmp_path: Path):
    path = tmp_path / "run.sqlite"
    WRITERS["nsys"](Shape(steps=6, kernels=40, gpus=2, processes=1), path, None)
    command = [sys.executable, "-m", "benchmarks.measure", str(path), "--times", "1"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    lines = printed.splitlines()[1:]
    assert [line[:24].strip() for line in lines] == ["reading", "measuring", *PARTS]
    seconds = {line[:24].strip(): float(line[24:].split()[0]) for line in lines}
    assert 0 < seconds["the ledger"] < seconds["measuring"]


@pytest.mark.parametrize(
    ("spans", "total"),
    [([], 0), ([(0, 2, 9), (1, 3, 9)], 3), ([(5, 6, 0), (0, 1, 0)], 2), ([(0, 9, 0), (1, 2, 0), (8, 10, 0)], 10)],
)
def test_what_overlaps_counts_once(spans, total):
    assert together(spans) == total
