"""Real training under horovodrun: a sweep that ends well, a rank that is killed, one that stops, one without memory."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.harness.running import DRIVE, PATIENCE_S, ROOT, carrying, prepared, rows, wait_until

BESIDE = Path(sys.executable).parent
pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(
        importlib.util.find_spec("horovod") is None or not shutil.which("horovodrun", path=f"{BESIDE}:{os.defpath}"),
        reason="Horovod is not installed: scripts/build_horovod.py builds it",
    ),
]
CELL = ["--models", "mlp", "--feeds", "resident", "--per-rank-batch", "8", "--ranks", "2"]
ENDLESS = [*CELL, "--steps", "1000000"]


BENCH = ["-m", "harness", "bench"]


def start(out: Path, mark: str, *options: str, bench: Sequence[str] = BENCH) -> subprocess.Popen[str]:
    environ = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, *bench, "--out", str(out), *options]
    return subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def launches(out: Path) -> list[Path]:
    """The directories of the launches of the sweep's one cell."""
    return sorted(out.glob("*/[0-9]"))


def rank_1_in_training(out: Path, mark: str, *, launch: int) -> psutil.Process:
    """The process that trains as rank 1 of a launch, once it does."""

    def training() -> bool:
        return any('"train"' in path.read_text() for path in out.glob(f"*/{launch}/rank1.progress"))

    wait_until(training, PATIENCE_S, lambda: "rank 1 never trained")
    found: list[psutil.Process] = []

    def alone() -> bool:  # a worker that starts a program is there twice for a moment
        found[:] = [process for process in carrying(mark) if trains_as_rank_1(process)]
        return len(found) == 1

    wait_until(alone, PATIENCE_S, lambda: found)
    return found[0]


def trains_as_rank_1(process: psutil.Process) -> bool:
    try:
        words, rank = process.cmdline(), process.environ().get("HOROVOD_RANK")
    except psutil.NoSuchProcess:  # it has ended since it was found
        return False
    return "harness.training.worker" in words and "harness.processes.keeper" not in words and rank == "1"


# Tests below start their ranks as users' are started, which takes 9 s of CPU more.
def test_two_ranks_that_train_are_a_row_with_their_rate(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGSCOPE_TEST_FORK", json.dumps(prepared()))
    drive = [str(DRIVE), "trained"]
    sweep = start(tmp_path / "out", mark, *CELL, "--launches", "1", "--steps", "20", bench=drive)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert sweep.returncode == 0, said
    (row,) = rows(tmp_path / "out")
    assert (row["status"], row["ranks"]) == ("ok", "2") and float(row["samples_per_s_global"]) > 0
    assert carrying(mark) == []


# What test_faults.py says of ranks that do not train, of two that do: TensorFlow's and Horovod's threads end, too.
@pytest.mark.ci
def test_a_killed_rank_is_a_row_and_kill_9_of_the_sweep_leaves_no_rank(tmp_path: Path, mark: str) -> None:
    """One sweep, of which each launch meets another fault: a sweep begins with 8 s of TensorFlow's imports."""
    out = tmp_path / "out"
    sweep = start(out, mark, *ENDLESS, "--launches", "2")
    rank_1_in_training(out, mark, launch=0).send_signal(signal.SIGKILL)
    rank_1_in_training(out, mark, launch=1)
    sweep.kill()
    said, _ = sweep.communicate()
    wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: "processes survive their sweep")
    killed = json.loads((launches(out)[0] / "record.json").read_text())
    assert (killed["status"], killed["reason"]) == ("failed", "rank 1 was killed by SIGKILL"), said


@pytest.mark.exhaustive
def test_a_stopped_rank_is_a_row(tmp_path: Path, mark: str) -> None:
    """What test_faults.py says of ranks that do not train, of one that does."""
    out = tmp_path / "out"
    sweep = start(out, mark, *ENDLESS, "--launches", "1", "--stall-limit", "8")
    rank_1_in_training(out, mark, launch=0).send_signal(signal.SIGSTOP)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    stopped = json.loads((launches(out)[0] / "record.json").read_text())
    assert stopped["status"] == "hung" and "stopped (SIGSTOP or a debugger): rank 1" in stopped["reason"], said
    assert carrying(mark) == []


@pytest.mark.ci
def test_a_batch_larger_than_memory_is_out_of_memory(tmp_path: Path, mark: str) -> None:
    # 2^38 samples of 256 floats: more than any machine of today has, and more than Linux lets a process reserve.
    sweep = start(tmp_path / "out", mark, *CELL, "--launches", "1", "--steps", "2", "--per-rank-batch", str(2**38))
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, rows(tmp_path / "out")[0]["status"]) == (1, "oom"), said
    assert carrying(mark) == []
