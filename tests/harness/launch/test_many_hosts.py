"""Sixteen ranks on four hosts and on two nodes of Slurm, all of them namespaces of this machine.

They alone catch what goes wrong from a third host on: slots, names, and who is blamed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.harness.running import DRIVE, ROOT, rows

pytestmark = [pytest.mark.root, pytest.mark.exhaustive]
HOSTS = ROOT / "scripts" / "hosts.sh"
SLURM = ROOT / "scripts" / "slurm_on_hosts.sh"
CANNOT_HERE = 77
FOUR = "a:4,b:4,c:4,d:4"
GRID = ["--models", "mlp", "--per-rank-batch", "8", "--feeds", "resident", "--launches", "1", "--steps", "10"]
# Sixteen TensorFlows on a few cores take minutes to load, and half a GB each.
REAL = ["--time-limit", "540", "--stall-limit", "300"]
REAL_BYTES = 12 << 30


def on_hosts(shared: Path, names: str, *words: object, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    """Run a command on the first of these hosts. Skips with the reason where that may not be."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "HOSTS_SHARE": str(shared), "HOSTS": names}
    argv = [str(HOSTS), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=environ)
    if done.returncode == CANNOT_HERE:
        pytest.skip(done.stderr.strip())
    return done


def ranks_of(out: Path) -> Counter[str]:
    """How many ranks ended on each host."""
    ends = [json.loads(path.read_text()) for path in out.glob("*/0/rank*.end.json")]
    assert all(end["exit_code"] == 0 for end in ends)
    return Counter(end["host"] for end in ends)


@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_sixteen_ranks_start_on_four_hosts(launcher: str, tmp_path: Path) -> None:
    pytest.importorskip("horovod", reason="Horovod is not installed")
    out = tmp_path / "out"
    words = [*GRID, "--ranks", "4,16", "--launcher", launcher, "--hosts", FOUR, "--out", out]
    done = on_hosts(tmp_path, "a b c d", sys.executable, DRIVE, "ok", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["ranks"]: row["status"] for row in rows(out)} == {"4": "ok", "16": "ok"}
    assert ranks_of(out) == {"a": 8, "b": 4, "c": 4, "d": 4}


@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_a_rank_killed_on_the_last_of_four_hosts_is_named_and_nothing_is_left(launcher: str, tmp_path: Path) -> None:
    pytest.importorskip("horovod", reason="Horovod is not installed")
    out = tmp_path / "out"
    words = [*GRID, "--ranks", "16", "--launcher", launcher, "--hosts", FOUR, "--out", out]
    script = '"$@"; code=$?; for host in a b c d; do ssh $host ps -e -o args=; done >"$0"; exit $code'
    done = on_hosts(tmp_path, "a b c d", "sh", "-c", script, tmp_path / "left", sys.executable, DRIVE, "killed", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    (row,) = rows(out)
    assert row["status"] == "failed" and "rank 15" in row["reason"], row
    assert "stand_in" not in (tmp_path / "left").read_text()


@pytest.mark.train
def test_sixteen_ranks_train_together_on_four_hosts(tmp_path: Path) -> None:
    pytest.importorskip("horovod", reason="Horovod is not installed")
    if psutil.virtual_memory().available < REAL_BYTES:
        pytest.skip("16 ranks of TensorFlow need 12 GiB of memory")
    out = tmp_path / "out"
    bench = [sys.executable, "-m", "harness", "bench", *GRID, "--ranks", "16"]
    done = on_hosts(tmp_path, "a b c d", *bench, "--hosts", FOUR, "--out", out, *REAL, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["status"] for row in rows(out)] == ["ok"]
    assert ranks_of(out) == {"a": 4, "b": 4, "c": 4, "d": 4}
    headers = [json.loads(path.read_text().splitlines()[0]) for path in out.glob("*/0/rank*.jsonl")]
    assert len(headers) == 16 and len({header["extra"]["weights_sha256"] for header in headers}) == 1


@pytest.mark.parametrize("launcher", ["srun", "slurm"])
def test_sixteen_ranks_start_on_two_nodes_of_slurm(launcher: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # Stand-ins need no MPI.
    words = [*GRID, "--ranks", "2,16", "--launcher", launcher, "--out", out]
    words += ["--launcher-args=--mpi=none"] if launcher == "srun" else []
    job = ["salloc", "-Q", "-N", "2", "-n", "16", sys.executable, DRIVE, "ok", *words]
    done = on_hosts(tmp_path, "a b", SLURM, *job)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["ranks"]: row["status"] for row in rows(out)} == {"2": "ok", "16": "ok"}
    ends = {path: json.loads(path.read_text())["host"] for path in out.glob("mlp-n16-*/0/rank*.end.json")}
    assert Counter(ends.values()) == {"a": 8, "b": 8}
