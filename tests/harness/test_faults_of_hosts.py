"""A host that is away is a row and not the end. What becomes of ranks on other hosts: test_two_hosts.py."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 120
BENCH = [
    sys.executable,
    str(HERE / "drive.py"),
    "ok",
    "--models",
    "mlp",
    "--feeds",
    "prefetch",
    "--per-rank-batch",
    "8",
]


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun"])
def test_a_host_that_cannot_be_reached_is_a_row(launcher: str, tmp_path: Path) -> None:
    if launcher == "horovodrun":
        pytest.importorskip("horovod", reason="Horovod is not installed")
    out = tmp_path / "out"
    away = ["--ranks", "2", "--hosts", "localhost:1,nowhere.invalid:1", "--launches", "1", "--launcher", launcher]
    argv = [*BENCH, *away, "--out", str(out)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    with (out / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (done.returncode, row["status"]) == (1, "unreachable"), done.stdout
    assert "nowhere.invalid" in row["reason"]
