"""Starting real ranks from tests, finding them again and waiting for what they do."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
DRIVE = Path(__file__).with_name("drive.py")
PREPARED = Path(__file__).with_name("prepared.py")
PATIENCE_S = 240  # for what takes seconds: a busy machine fails no test
LAUNCHERS = {
    "gloo": ["horovodrun", "--gloo", "-np", "2"],
    "mpirun": ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"],
}


def environment() -> dict[str, str]:
    """Ours, with the environment's programs first, without GPUs, and as root where that is so."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT)))),
        "CUDA_VISIBLE_DEVICES": "-1",
        # Every ms ranks ask each other whether there is anything to do, which takes more CPU than small trainings.
        "HOROVOD_CYCLE_TIME": "5",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def run_python(*words: str, prefix: Sequence[str] = (), timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
    """`prefix python words...` in the repository's root, output caught."""
    command = [*prefix, sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout_s)


def run_in_turn(
    scripts: Sequence[Sequence[object]], launcher: str | None = None, timeout_s: float = 900
) -> subprocess.CompletedProcess[str]:
    """`python script words...` for each (script, *words), in one start of the ranks (in_turn.py)."""
    listed = json.dumps([[str(word) for word in script] for script in scripts])
    in_turn = str(Path(__file__).with_name("in_turn.py"))
    done = run_python(in_turn, listed, prefix=prepared(launcher), timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@cache
def _prepared() -> str:
    """The address of a process that has imported TensorFlow (prepared.py): one for both workers of pytest-xdist.

    It ends with the process that was asked for the tests.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.bind(f"\0ringscope-{run}" if run else "")  # Linux gives it a name
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return f"@ringscope-{run}"  # the other worker has started it
        server.listen(64)
        asked = os.getppid() if run else os.getpid()
        argv = [sys.executable, str(PREPARED), str(server.fileno()), str(asked)]
        subprocess.Popen(argv, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, pass_fds=[server.fileno()])
        return f"@{server.getsockname()[1:].decode()}"


def prepared(launcher: str | None = None) -> list[str]:
    """What to put before `python words...`: what starts two ranks, if any, and spares each process 3 s.

    Only for what a rank does once it has imported TensorFlow. How ranks are started is asked of LAUNCHERS.
    """
    fork = [sys.executable, "-S", "-E", str(PREPARED), _prepared()]
    pair = [sys.executable, str(Path(__file__).with_name("pair.py"))]
    return {None: fork, "gloo": [*fork, *pair], "mpirun": [*LAUNCHERS["mpirun"], *fork]}[launcher]


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


def named(name: str, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of this name; a process may end, or become another program, while it is looked at."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == name:
                found.append(process)
    return found


def kill_all(mark: str) -> None:
    """Whatever is left of what was started with RINGSCOPE_TEST=mark; some of it may end by itself meanwhile."""
    for process in carrying(mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


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
