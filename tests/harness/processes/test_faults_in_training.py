"""Real training under horovodrun, real faults: a rank that is killed, one that stops, one without memory."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness.running import ROOT, carrying, rows, wait_until

BESIDE = Path(sys.executable).parent
pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(
        importlib.util.find_spec("horovod") is None or not shutil.which("horovodrun", path=f"{BESIDE}:{os.defpath}"),
        reason="Horovod is not installed: scripts/build_horovod.py builds it",
    ),
]
PATIENCE_S = 240
CELL = ["--models", "mlp", "--feeds", "resident", "--per-rank-batch", "8", "--ranks", "2", "--launches", "1"]
ENDLESS = [*CELL, "--steps", "1000000"]


def start(out: Path, mark: str, *options: str) -> subprocess.Popen[str]:
    environ = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "harness", "bench", "--out", str(out), *options]
    return subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def rank_1_in_training(out: Path, mark: str) -> psutil.Process:
    """The process that trains as rank 1, once it does."""

    def training() -> bool:
        return any('"train"' in path.read_text() for path in out.glob("*/0/rank1.progress"))

    wait_until(training, PATIENCE_S, lambda: "rank 1 never trained")
    (worker,) = [
        process
        for process in carrying(mark)
        if "harness.training.worker" in process.cmdline()
        and "harness.processes.keeper" not in process.cmdline()
        and process.environ().get("HOROVOD_RANK") == "1"
    ]
    return worker


def test_a_killed_rank_is_a_row(tmp_path: Path, mark: str) -> None:
    sweep = start(tmp_path / "out", mark, *ENDLESS)
    rank_1_in_training(tmp_path / "out", mark).send_signal(signal.SIGKILL)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    (found,) = rows(tmp_path / "out")
    assert (sweep.returncode, found["status"], found["reason"]) == (1, "failed", "rank 1 was killed by SIGKILL"), said
    assert carrying(mark) == []


def test_a_stopped_rank_is_hung(tmp_path: Path, mark: str) -> None:
    sweep = start(tmp_path / "out", mark, *ENDLESS, "--stall-limit", "8")
    rank_1_in_training(tmp_path / "out", mark).send_signal(signal.SIGSTOP)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, rows(tmp_path / "out")[0]["status"]) == (1, "hung"), said
    assert carrying(mark) == []


def test_a_batch_larger_than_memory_is_out_of_memory(tmp_path: Path, mark: str) -> None:
    # 2^38 samples of 256 floats: more than any machine of today has, and more than Linux lets a process reserve.
    sweep = start(tmp_path / "out", mark, *CELL, "--steps", "2", "--per-rank-batch", str(2**38))
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, rows(tmp_path / "out")[0]["status"]) == (1, "oom"), said
    assert carrying(mark) == []


def test_kill_9_of_the_sweep_leaves_no_rank(tmp_path: Path, mark: str) -> None:
    sweep = start(tmp_path / "out", mark, *ENDLESS)
    rank_1_in_training(tmp_path / "out", mark)
    sweep.kill()
    sweep.communicate()
    wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: "processes survive their sweep")
