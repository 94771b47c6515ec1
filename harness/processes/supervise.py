"""Start a launch, watch it, end it (at its time limit, at a stall, or with the sweep) and judge how it ended."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiles.ground.errors import RingscopeError

from .. import launch
from ..launch.hosts import Host
from . import remote_files, signals
from .lifeline import Lifeline, let_go
from .outcome import Outcome, judge

# Short enough for the progress bar and the limits, long enough to take no time from ranks on the same cores.
POLL_S = 0.5
# Seconds between one rank's failure and the end of the other ranks; a working launcher ends them earlier.
AFTER_FAILURE_S = 20
PHASES = ("start", "import", "connect", "build", "autotune", "warm-up", "train", "judge", "finish", "done")


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a launch in seconds. time_s: of the whole launch. stall_s: without a new step, once training has
    begun."""

    time_s: float = 900
    stall_s: float = 180


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a rank: the phase, and how many of the phase's `of` steps are done."""

    phase: str
    step: int
    of: int

    def order(self) -> tuple[int, int]:
        """A sort key: greater is later."""
        return (PHASES.index(self.phase) if self.phase in PHASES else -1, self.step)

    def stepping(self) -> bool:
        """True if steps are under way, so that a long pause is a stall; building and compiling are none."""
        return self.phase == "train" or (self.phase in ("autotune", "warm-up") and self.step > 0)

    def __str__(self) -> str:
        return f"{self.phase} step {self.step} of {self.of}" if self.of else self.phase


def supervise(
    make_job: Callable[[str], launch.Job],
    directory: Path,
    *,
    processes: int,
    limits: Limits,
    hosts: Sequence[Host] = (),
    ssh: Sequence[str] = (),
    on_progress: Callable[[Progress], object] = lambda slowest: None,
) -> Outcome:
    """Run the job that `make_job(lifeline)` returns until it ends, and judge it by the files in `directory`.

    ssh: words of a command that reaches hosts that do not see `directory`. on_progress: called with the progress of the
    slowest rank whose file is visible here. No process of the job is left when this returns or raises,
    KeyboardInterrupt included.
    """
    with (
        remote_files.copied(directory.resolve(), hosts, ssh) as lost,
        signals.noted() as look,
        Lifeline(hosts, lines=processes + 1) as lifeline,
    ):
        look()  # Ctrl-C or a signal may have come while the previous launch was ending
        job = make_job(lifeline.address)
        keeper = _start(job, lifeline.address, directory)
        try:
            stopped = _watch(keeper, directory, limits, on_progress, look)
        finally:
            lifeline.close()
            let_go(keeper)
    code, remote = keeper.returncode, bool(hosts)
    return judge(directory, processes=processes, exit_code=code, stopped=stopped, remote=remote, lost=lost)


def _start(job: launch.Job, lifeline: str, directory: Path) -> subprocess.Popen[bytes]:
    with (directory / "launcher.log").open("ab") as log:
        try:
            return subprocess.Popen(
                launch.keeper(job.argv, lifeline=lifeline),
                env=job.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only the sweep, which ends its ranks in order
            )
        except OSError as error:
            raise RingscopeError(f"cannot start {job.argv[0]}: {error}; check that it is installed") from error


def _watch(
    keeper: subprocess.Popen[bytes],
    directory: Path,
    limits: Limits,
    on_progress: Callable[[Progress], object],
    look: Callable[[], None],
) -> Outcome | None:
    """Wait for the end of a launch. Returns None if it ends by itself, else the outcome because of which the caller
    must end it. `look` raises KeyboardInterrupt if the job was asked to end (`signals`)."""
    began = moved = time.monotonic()
    failed: float | None = None
    seen: dict[int, Progress] = {}
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(POLL_S)
            return None
        look()
        now = time.monotonic()
        progress = read_progress(directory)
        if progress and progress != seen:  # empty if somebody has deleted the files
            seen, moved = progress, now
            on_progress(min(seen.values(), key=Progress.order))
        if failed is None and any(directory.glob("rank*.error.json")):
            failed = now
        if failed is not None and now - failed > AFTER_FAILURE_S:
            return None  # the rank's error file says what happened
        if now - began > limits.time_s:
            return Outcome("timeout", f"not done within {limits.time_s:g} s (--time-limit){_where(seen)}")
        if any(map(Progress.stepping, seen.values())) and now - moved > limits.stall_s:
            why = f"{_where(seen)}{_stopped_below(keeper.pid)}"
            return Outcome("hung", f"no step for {limits.stall_s:g} s (--stall-limit){why}")


def read_progress(directory: Path) -> dict[int, Progress]:
    """The last progress that each rank has written: rank -> Progress."""
    said = {}
    for path in directory.glob("rank*.progress"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            told = json.loads(path.read_text())
            said[int(path.stem[4:])] = Progress(str(told["phase"]), int(told["step"]), int(told["of"]))
    return dict(sorted(said.items()))


def _where(progress: dict[int, Progress]) -> str:
    if not progress:
        return "; no rank had begun"
    least = min(progress.values(), key=Progress.order)
    behind = [str(rank) for rank, told in progress.items() if told == least]
    if len(behind) == len(progress):
        return f"; every rank was at {least}"
    most = max(progress.values(), key=Progress.order)
    return f"; rank {', '.join(behind)} was at {least}, the farthest rank at {most}"


def _stopped_below(pid: int) -> str:
    """Words that name the ranks of this host that are stopped (SIGSTOP or a debugger), because all other ranks wait for
    them."""
    import psutil

    stopped = set()
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            rank = process.environ().get("RINGSCOPE_RANK")
            if rank and process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                stopped.add(int(rank))
    return f"; stopped (SIGSTOP or a debugger): rank {', '.join(map(str, sorted(stopped)))}" if stopped else ""
