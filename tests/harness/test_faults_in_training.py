"""Real training under horovodrun, real faults: a rank that is killed, one that stops, one without memory."""

from __future__ import annotations

import csv
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    for process in carrying(mark):
        process.kill()


def carrying(mark: str) -> list[psutil.Process]:
    """The living processes of the sweep that bears the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("RINGSCOPE_TEST") == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def start(out: Path, mark: str, *options: str) -> subprocess.Popen[str]:
    environ = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "harness", "bench", "--out", str(out), *options]
    return subprocess.Popen(argv, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def row(out: Path) -> dict[str, str]:
    with (out / "results.csv").open() as file:
        (only,) = csv.DictReader(file)
    return only


def rank_1_in_training(out: Path, mark: str) -> psutil.Process:
    """The process that trains as rank 1, once it does."""

    def training() -> bool:
        return any('"train"' in path.read_text() for path in out.glob("*/0/rank1.progress"))

    wait_until(training, "rank 1 never trained")
    (worker,) = [
        process
        for process in carrying(mark)
        if "harness.worker" in process.cmdline()
        and "harness.keeper" not in process.cmdline()
        and process.environ().get("HOROVOD_RANK") == "1"
    ]
    return worker


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_killed_rank_is_a_row(tmp_path: Path, mark: str) -> None:
    sweep = start(tmp_path / "out", mark, *ENDLESS)
    rank_1_in_training(tmp_path / "out", mark).send_signal(signal.SIGKILL)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    found = row(tmp_path / "out")
    assert (sweep.returncode, found["status"], found["reason"]) == (1, "failed", "rank 1 was killed by SIGKILL"), said
    assert carrying(mark) == []


def test_a_stopped_rank_is_hung(tmp_path: Path, mark: str) -> None:
    sweep = start(tmp_path / "out", mark, *ENDLESS, "--stall-limit", "8")
    rank_1_in_training(tmp_path / "out", mark).send_signal(signal.SIGSTOP)
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, row(tmp_path / "out")["status"]) == (1, "hung"), said
    assert carrying(mark) == []


def test_a_batch_larger_than_memory_is_out_of_memory(tmp_path: Path, mark: str) -> None:
    # 2^38 samples of 256 floats: more than any machine of today has, and more than Linux lets a process reserve.
    sweep = start(tmp_path / "out", mark, *CELL, "--steps", "2", "--per-rank-batch", str(2**38))
    said, _ = sweep.communicate(timeout=PATIENCE_S)
    assert (sweep.returncode, row(tmp_path / "out")["status"]) == (1, "oom"), said
    assert carrying(mark) == []


def test_kill_9_of_the_sweep_leaves_no_rank(tmp_path: Path, mark: str) -> None:
    sweep = start(tmp_path / "out", mark, *ENDLESS)
    rank_1_in_training(tmp_path / "out", mark)
    sweep.kill()
    sweep.communicate()
    wait_until(lambda: not carrying(mark), "processes survive their sweep")
