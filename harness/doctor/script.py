"""`ringscope doctor -- COMMAND`: run a script for some steps and say whether its ranks train together.

The command runs on every rank in a copy of the working directory, and observer.py observes each rank from inside.
Doctor ends the command when every rank has taken enough steps or has ended, when ranks hang, or when the time limit is
over.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError

from .. import launch
from ..launch import users_launcher
from ..launch.environment import allowed, search_path
from ..launch.profilers import check_script
from ..processes.lifeline import Lifeline
from . import observer
from .workspace import copied

IN_PLACE = ", or give --in-place: then the script may overwrite files here"
POLL_S = 0.2
STALL_S = 60.0  # seconds without a new step of any rank, after at least one rank has finished
LAST_WORDS_S = 10.0  # seconds that a rank has to end after doctor tells it to


@dataclass
class Rank:
    """The observations of one rank. steps: number of a step -> its record; number 0 is the state before the first
    step."""

    number: int
    of: int = 0  # number of ranks, as the launcher tells each rank
    pid: int | None = None
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    backend: str | None = None
    unseen: dict[str, list[str]] = field(default_factory=dict)  # what doctor cannot see -> absent names (hooks.py)
    done: bool = False
    end: dict[str, Any] | None = None  # exit code or signal and time, as the rank's keeper wrote them
    ended_at: float = 0.0
    log: str = ""
    stack: str = ""  # the Python stack of a rank that hangs

    @property
    def last_step(self) -> int:
        return max(self.steps, default=0)


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial to run. launcher: one of ringscope's; if `own`, the user's own, which is part of the command and sets
    the number of ranks."""

    command: Sequence[str]
    ranks: int
    launcher: str
    own: bool = False
    steps: int = 10
    limit_s: float = 300.0
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """The trial's result. hung: some ranks made no progress. late: the time limit was over before enough was seen.
    by_script: True if each of several processes that were started started all ranks of the script itself."""

    trial: Trial
    ranks: list[Rank]
    hung: bool
    late: bool
    launcher_log: str
    by_script: bool = False


def observe(trial: Trial, tell: Callable[[list[Rank]], None], environ: Mapping[str, str]) -> Observed:
    """Run the command until enough is known; `tell` is called with the ranks meanwhile. Raises RingscopeError if the
    command cannot be started."""
    if shutil.which(trial.command[0], path=search_path(environ)) is None:
        raise RingscopeError(f"{trial.command[0]}: no such program; give a command such as: python train.py")
    if not trial.own:
        check_script(trial.command)
        if trial.launcher != "single" and shutil.which(trial.launcher, path=search_path(environ)) is None:
            raise RingscopeError(
                f"{trial.launcher} is not installed: take another --launcher, -np 1 which needs none, or the launcher "
                "of the script, such as: ringscope doctor -- torchrun --nproc-per-node 2 train.py"
            )
    with tempfile.TemporaryDirectory(prefix="ringscope-doctor-") as temporary:
        seen = Path(temporary, "seen")
        seen.mkdir()
        place = nullcontext(Path.cwd()) if trial.in_place else copied(Path.cwd(), Path(temporary, "copy"), IN_PLACE)
        with place as folder:
            with Lifeline(lines=1 if trial.own else trial.ranks + 1) as lifeline:
                process = _start(trial, seen, folder, environ, lifeline.address)
                found = _follow(trial, process, seen, tell)
            process.wait()  # processes that still run end with the lifeline
        return Observed(trial, *found, by_script=(seen / observer.BY_SCRIPT).exists())


def _start(
    trial: Trial, seen: Path, folder: Path, environ: Mapping[str, str], lifeline: str
) -> subprocess.Popen[bytes]:
    """Start the launcher so that only the ranks' Python processes are observed. With ringscope's launchers the rank's
    command sets the environment variables for that; under the user's launcher each Python process checks whether it is
    a rank (users_launcher.is_rank)."""
    variables = {
        observer.FOLDER: str(seen),
        observer.STEPS: str(trial.steps),
        observer.PATHS: environ.get("PYTHONPATH", ""),
        # Ranks that do not choose a GPU would otherwise take the memory of all GPUs.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if trial.own:
        job = launch.Job(list(trial.command), users_launcher.entered(environ, variables))
    else:
        hook = Path(launch.__file__).with_name("hook")
        variables["PYTHONPATH"] = ":".join(filter(None, (str(hook), allowed(environ).get("PYTHONPATH"))))
        job = launch.command(
            ["env", *(f"{name}={value}" for name, value in variables.items()), *trial.command],
            ranks=trial.ranks,
            launcher=trial.launcher,
            environ=environ,
            lifeline=lifeline,
            log_dir=seen,
        )
    with (seen / "launcher.log").open("wb") as output:
        return subprocess.Popen(
            launch.keeper(job.argv, lifeline=lifeline),
            env=job.env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _follow(
    trial: Trial, process: subprocess.Popen[bytes], seen: Path, tell: Callable[[list[Rank]], None]
) -> tuple[list[Rank], bool, bool, str]:
    """Wait until enough is known. Returns (the ranks, True if they hung, True if time was up, the launcher's
    output)."""
    deadline = time.monotonic() + trial.limit_s
    moved_at, moves = time.monotonic(), -1
    hung = late = False
    while True:
        over = process.poll() is not None
        ranks = _ranks(trial, seen)
        tell(ranks)
        now, so_far = time.monotonic(), sum(len(rank.steps) + rank.done + (rank.end is not None) for rank in ranks)
        if so_far != moves:
            moved_at, moves = now, so_far
        late = now > deadline
        waited_for = [rank for rank in ranks if not rank.done and rank.end is None]
        hung = now - moved_at > STALL_S and 0 < len(waited_for) < len(ranks)
        if over or not waited_for or late or hung or (seen / observer.BY_SCRIPT).exists():
            break
        time.sleep(POLL_S)
    for rank in waited_for:
        _ask_where(rank)
    if waited_for and not over:
        time.sleep(1)
    (seen / "end").touch()
    with suppress(subprocess.TimeoutExpired):
        process.wait(LAST_WORDS_S)
    words = _text(seen / "launcher.log")
    for rank in ranks:
        rank.log = rank.log or _text(seen / f"rank{rank.number}.log") or words
        rank.stack = _text(seen / f"rank{rank.number}.stack")
    if trial.own and over and process.returncode and all(rank.end is None for rank in ranks):
        for rank in waited_for:  # the process ended before it could record how
            rank.end = {"exit_code": process.returncode, "signal": None}
    return ranks, hung, late and bool(waited_for), words


def _ranks(trial: Trial, seen: Path) -> list[Rank]:
    """All ranks as observed so far. If ringscope does not start them, their own files say how many there are."""
    number = trial.ranks
    if trial.own or number == 1:
        there = (int(path.stem.removeprefix("rank")) for path in seen.glob("rank*.jsonl"))
        number = max((_read(seen, each).of for each in there), default=0) or trial.ranks
    return [_read(seen, each) for each in range(number)]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _read(seen: Path, number: int) -> Rank:
    """Read a rank's file so far. If the command started Python several times, the last process counts."""
    rank = Rank(number)
    for text in _text(seen / f"rank{number}.jsonl").splitlines(keepends=True):
        if not text.endswith("\n"):
            break
        line = json.loads(text)
        if line["kind"] == "process":
            rank = Rank(number, line["of"], line["pid"])
        elif line["kind"] == "step":
            rank.steps[line["step"]] = line
        elif line["kind"] == "unseen":
            rank.unseen[line["what"]] = line["absent"]
        elif line["kind"] == "backend":
            rank.backend = line["backend"]
        elif line["kind"] == "end":
            rank.end = rank.end or {"exit_code": line["exit_code"], "signal": None}
            rank.ended_at, rank.log = rank.ended_at or line["at"], rank.log or line["log"]
        elif line["kind"] == "done":
            rank.done = True
            break
    end = seen / f"rank{number}.end.json"
    if end.exists() and not rank.done:
        rank.end, rank.ended_at = json.loads(end.read_text()), end.stat().st_mtime
    return rank


def _ask_where(rank: Rank) -> None:
    """Make the rank write its Python stack (SIGUSR2), which works even while it waits inside a library."""
    if rank.pid is not None:
        with suppress(ProcessLookupError):
            os.kill(rank.pid, signal.SIGUSR2)
