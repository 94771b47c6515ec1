"""Ranks on another host end with the sweep, also when no word of its end reaches them; a host that is away is a row."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TWO_HOSTS = ROOT / "scripts" / "two_hosts.sh"
CANNOT_HERE = 77
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
TWO = ["--ranks", "2", "--hosts", "a:1,b:1", "--launches", "1"]
OF_THE_HOSTS = ("unshare", "nsenter", "two_hosts.sh", "bash", "sh", "sshd", "sleep")  # stand as long as the hosts do
pytestmark = pytest.mark.root


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    for process in carrying(mark):
        process.kill()


def carrying(mark: str) -> list[psutil.Process]:
    """The sweep's living processes on both hosts: this machine sees into their namespaces."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("RINGSCOPE_TEST") == mark and process.name() not in OF_THE_HOSTS
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def on_host(name: str, process: psutil.Process) -> bool:
    asked = subprocess.run(
        ["nsenter", "-t", str(process.pid), "--uts", "hostname"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() == name


def start_on_a(mark: str, argv: list[str]) -> subprocess.Popen[str]:
    """Run the command on host a, beside which there is a host b; both stand for some minutes after it."""
    environ = os.environ | {
        "RINGSCOPE_TEST": mark,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = [str(TWO_HOSTS), "sh", "-c", '"$@"; sleep 300', "-", *argv]
    return subprocess.Popen(script, env=environ, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool], hosts: subprocess.Popen[str], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if hosts.poll() == CANNOT_HERE:
            pytest.skip(str(hosts.stderr.read() if hosts.stderr else "no namespaces here").strip())
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def rank_on_b(mark: str) -> list[psutil.Process]:
    return [p for p in carrying(mark) if "stand_in.py" in str(p.cmdline()) and on_host("b", p)]


@pytest.mark.parametrize("cut", [False, True], ids=["reached", "cut off"])
def test_a_rank_on_another_host_dies_with_the_sweep(cut: bool, tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    # Process ids of a new namespace repeat: what an mpirun that was killed has left in /tmp would be in the way.
    own = ["--launcher", "mpirun", "--launcher-args", f"--prtemca prte_tmpdir_base {tmp_path}/prte"]
    argv = [*BENCH, *TWO, *own, "--steps", "100000", "--out", str(out)]
    hosts = start_on_a(mark, argv)
    try:
        wait_until(lambda: bool(list(out.glob("*/0/rank1.progress")) and rank_on_b(mark)), hosts, "no rank on b")
        if cut:
            rank = rank_on_b(mark)[0].pid
            subprocess.run(["nsenter", "-t", str(rank), "--net", "ip", "link", "set", "eth0", "down"], check=True)
        (sweep,) = [p for p in carrying(mark) if str(HERE / "drive.py") in p.cmdline()]
        sweep.kill()
        wait_until(lambda: not carrying(mark), hosts, "processes survive their sweep")
        assert hosts.poll() is None, "the hosts ended, and their processes only with them"
    finally:
        hosts.kill()  # unshare lets a SIGTERM pass by; with it go both hosts
        hosts.wait()


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun"])
def test_a_host_that_cannot_be_reached_is_a_row(launcher: str, tmp_path: Path, mark: str) -> None:
    if launcher == "horovodrun":
        pytest.importorskip("horovod", reason="Horovod is not installed")
    out = tmp_path / "out"
    away = ["--ranks", "2", "--hosts", "localhost:1,nowhere.invalid:1", "--launches", "1", "--launcher", launcher]
    environ = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*BENCH, *away, "--out", str(out)], env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    with (out / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (done.returncode, row["status"]) == (1, "unreachable"), done.stdout
    assert "nowhere.invalid" in row["reason"]
