"""`--launcher slurm` under a real Slurm of one node (scripts/one_node_slurm.sh).

They alone catch a batch script or a step that a real Slurm refuses.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.launch import batch, slurm
from tests.harness.running import DRIVE, ROOT

pytestmark = [pytest.mark.root, pytest.mark.exhaustive]
SCRIPT = ROOT / "scripts" / "one_node_slurm.sh"
CANNOT_HERE = 77
GRID = ["--models", "mlp", "--per-rank-batch", "8", "--feeds", "resident", "--ranks", "1,2", "--launches", "1"]
GRID += ["--steps", "10", "--warmup", "2", "--launcher", "slurm", "--time-limit", "300"]


def under_slurm(*argv: object, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    """Run a command where there is a Slurm of one node. Skips with the reason where that may not be."""
    words = [SCRIPT, *map(str, argv)]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=environ)
    if done.returncode == CANNOT_HERE:
        pytest.skip(done.stderr.strip())
    return done


def statuses(out: Path) -> dict[str, str]:
    with (out / "results.csv").open() as file:
        return {row["ranks"]: row["status"] for row in csv.DictReader(file)}


@pytest.mark.train
def test_a_sweep_is_submitted_and_trains_inside_its_allocation(tmp_path: Path) -> None:
    pytest.importorskip("horovod", reason="Horovod is not installed")
    out = tmp_path / "out"
    bench = f'"{sys.executable}" -m harness bench --out "{out}" {" ".join(GRID)} --ranks 2'
    until_done = 'while [ -n "$(squeue -h)" ]; do sleep 0.5; done'
    done = under_slurm("sh", "-c", f"{bench} && {until_done}")
    job_log = (out / "job.log").read_text() if (out / "job.log").exists() else "no job.log"
    assert done.returncode == 0, done.stdout + done.stderr
    assert "job 1 submitted" in done.stdout
    assert statuses(out) == {"2": "ok"}, job_log


def test_inside_an_allocation_the_sweep_starts_at_once_on_its_nodes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = under_slurm("salloc", "-Q", "-n", "2", sys.executable, DRIVE, "ok", "--out", out, *GRID)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(out) == {"1": "ok", "2": "ok"}
    for end in out.glob("*/0/rank*.end.json"):
        assert '"host": "node"' in end.read_text()


def test_what_slurm_refuses_is_told_with_what_to_do(tmp_path: Path) -> None:
    refused = ["--launcher-args=--partition=nowhere"]
    done = under_slurm(sys.executable, DRIVE, "ok", "--out", tmp_path / "out", *GRID, *refused)
    assert done.returncode != 0
    assert "partition" in done.stdout + done.stderr


def test_inside_an_allocation_srun_starts_the_ranks_itself(tmp_path: Path) -> None:
    out = tmp_path / "out"
    grid = [word if word != "slurm" else "srun" for word in GRID]
    # Stand-ins need no MPI, and PMIx's library may not be here.
    words = ["--launcher-args=--mpi=none", "--out", out]
    done = under_slurm("salloc", "-Q", "-n", "2", sys.executable, DRIVE, "ok", *grid, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(out) == {"1": "ok", "2": "ok"}


def test_sbatch_takes_a_script_whose_paths_and_arguments_are_strange(tmp_path: Path) -> None:
    out = tmp_path / 'it\'s a #1 50% "run" $(touch pwned)'
    out.mkdir()
    argv = ("bash", "-c", 'echo "$0"', "a 'b'\n$(touch pwned)")
    request = batch.Request(argv, ranks=2, minutes=5, log=out / "job.log", ranks_per_node=2, cpus_per_rank=1)
    strange = ("--comment=a 'b' \"c\" #d \\e", "--partition=all")
    (out / "job.sbatch").write_text(slurm.script(dataclasses.replace(request, args=strange)))
    until_done = 'while [ -n "$(squeue -h)" ]; do sleep 0.2; done'
    script = f'sbatch --test-only "$0" && sbatch "$0" && scontrol show job 2 && {until_done}'
    done = under_slurm("bash", "-c", script, out / "job.sbatch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Comment=a 'b' \"c\" #d \\e" in done.stdout and "NumTasks=2" in done.stdout
    assert (out / "job.log").read_text() == "a 'b'\n$(touch pwned)\n"
    assert not list(tmp_path.rglob("pwned"))
