"""`ringscope record -- srun ...` under a real Slurm of one node (scripts/one_node_slurm.sh), whose tasks are ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.launch.test_slurm import under_slurm

pytestmark = [pytest.mark.root, pytest.mark.ci]
SCRIPT = """
import os, time
from pathlib import Path
from harness.machine import ranks
assert os.environ["DATA"] == "/x" and ranks.size() == 2
print("rank", ranks.rank(), "recorded as", os.environ["RINGSCOPE_RANK"])
"""


@pytest.mark.parametrize("around", [["salloc", "-Q", "-n", "2", "env"], ["env"]])
def test_each_task_of_srun_is_recorded(tmp_path: Path, around: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    out = tmp_path / "out"
    words = ["-m", "harness", "record", "--profiler", "framework", "--out", out, "--delay", "60", "--duration", "1"]
    command = ["srun", "-n", "2", "--mpi=none", sys.executable, tmp_path / "train.py"]
    done = under_slurm(*around, "DATA=/x", sys.executable, *words, "--", *command)
    for rank in (0, 1):
        assert f"rank {rank} recorded as {rank}" in done.stdout, done.stdout + done.stderr
    assert sorted(path.name for path in (out / "command" / "0" / "started").iterdir()) == ["0.json", "1.json"]
    # It has ended before the time to record came: which is told, and told as bad input.
    assert done.returncode == 2 and "wrote no recording" in done.stderr
