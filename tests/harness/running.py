"""Starting real ranks from tests, finding them again and waiting for what they do."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
DRIVE = Path(__file__).with_name("drive.py")
LAUNCHERS = {
    "gloo": ["horovodrun", "--gloo", "-np", "2"],
    "mpirun": ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"],
}


def environment() -> dict[str, str]:
    """Ours, with the environment's programs first, without GPUs, and as root where that is so."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def run_python(*words: str, prefix: Sequence[str] = (), timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """`prefix python words...` in the repository's root, output caught."""
    command = [*prefix, sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout_s)


def run_in_turn(
    scripts: Sequence[Sequence[object]], prefix: Sequence[str] = (), timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """`prefix python script words...` for each (script, *words), in one start of the ranks (in_turn.py)."""
    listed = json.dumps([[str(word) for word in script] for script in scripts])
    done = run_python(str(Path(__file__).with_name("in_turn.py")), listed, prefix=prefix, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def run_forked(
    out: Path, programs: Sequence[Sequence[object]], timeout_s: float = 600
) -> list[subprocess.CompletedProcess[str]]:
    """`python -m words...` for each of `programs`, which share one import of TensorFlow (forked.py)."""
    listed = [[str(word) for word in words] for words in programs]
    done = run_python(str(Path(__file__).with_name("forked.py")), str(out), json.dumps(listed), timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    codes = json.loads((out / "codes.json").read_text())
    logs = [(out / f"{number}.log").read_text() for number in range(len(listed))]
    return [subprocess.CompletedProcess(*ended) for ended in zip(listed, codes, logs, strict=True)]


def carrying(mark: str) -> list[psutil.Process]:
    """The living processes that were started with RINGSCOPE_TEST=mark, whatever became of their parents."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("RINGSCOPE_TEST") == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_until(condition: Callable[[], object], seconds: float, what: Callable[[], object]) -> None:
    """Fails with `what()` where the condition does not come to hold."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def rows(out: Path) -> list[dict[str, str]]:
    """results.csv of a run directory."""
    with (out / "results.csv").open() as file:
        return list(csv.DictReader(file))
