"""`python -m harness.processes.keeper -- COMMAND`: run a command, and let none of its processes outlive the sweep.

A keeper runs above the launcher and one above every rank, on this and on other hosts. It holds a TCP connection to the
sweep, the lifeline. Whatever ends the sweep, kill -9 included, closes the connection: the kernel tells the keepers at
once; a host that is dead or cut off is noticed by TCP keep-alive within 35 s. The keeper then kills every process below
it, also processes in sessions of their own: it is a subreaper (prctl(2)), so orphans become its children.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from profiles.ground.files import write_whole

from ..machine import ranks, recorded_ranks

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CONNECT_TIMEOUT_S = 15
GRACE_S = 3  # seconds between a SIGTERM that the keeper passes on and its SIGKILL
MEMORY_POLL_S = 0.05
MIB = 1 << 20
CANNOT_START = 127
# mpirun 4 and 5 make a folder below these, named by their process id. A killed mpirun leaves its folder behind, and a
# later mpirun with the same process id refuses to start.
MPIRUN_FILES = ("OMPI_MCA_orte_local_tmpdir_base", "PRTE_MCA_prte_local_tmpdir_base")


def main() -> int:
    parser = argparse.ArgumentParser(prog="harness.processes.keeper", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lifeline", help="host:port/token of the sweep")
    parser.add_argument("--log-dir", type=Path, help="where rank<k>.log and rank<k>.end.json go")
    parser.add_argument("--rank", action="store_true", help="this command is a rank's")
    parser.add_argument("--record-ranks", default=recorded_ranks.ALL, help="the ranks to record")
    parser.add_argument(
        "--memory-limit-mb", type=int, default=0, help="end the command when it uses more memory; 0: never"
    )
    parser.add_argument(
        "--profiler-words",
        type=int,
        default=0,
        help="how many words at the beginning of the command belong to the profiler",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    argv = options.command[1:] if options.command[:1] == ["--"] else options.command
    os.environ[recorded_ranks.SAMPLE] = options.record_ranks
    if options.rank and not recorded_ranks.holds(options.record_ranks, ranks.rank(), ranks.local_rank()):
        os.environ[recorded_ranks.RECORDED] = "0"
        argv = argv[options.profiler_words :]
    kept = partial(keep, argv, lifeline=options.lifeline, log_dir=options.log_dir)
    if options.rank:
        return kept(rank=True, memory_limit_mb=options.memory_limit_mb)
    with tempfile.TemporaryDirectory(prefix="ringscope-", ignore_cleanup_errors=True) as folder:
        for name in MPIRUN_FILES:
            os.environ.setdefault(name, folder)
        return kept(rank=False)


def keep(argv: list[str], *, lifeline: str | None, log_dir: Path | None, rank: bool, memory_limit_mb: int = 0) -> int:
    """Run `argv` until it ends or the lifeline closes. Returns its exit code, or 128 + n if signal n ended it.

    lifeline: `host:port/token`. log_dir: folder of a rank's files. rank: the command is a rank, not a launcher.
    memory_limit_mb: limit of host memory in MiB, 0 for none; a command that exceeds it is killed, and its end file says
    so.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    number = ranks.rank()
    if rank:
        os.environ["RINGSCOPE_RANK"] = str(number)
        os.environ["RINGSCOPE_SIZE"] = str(ranks.size())
    line = None
    here = socket.gethostname()
    if lifeline:
        try:
            line = connect(lifeline)
        except OSError as error:
            return _refuse(
                f"rank {number} on {here} cannot reach the sweep at {lifeline.partition('/')[0]} ({error}); "
                "let TCP connections through"
            )
    if rank and log_dir and not log_dir.is_dir():
        return _refuse(f"rank {number} does not see {log_dir} on {here}; name an --out that every host can see")
    wake = _wake_on_signals()
    before = oom_kills()
    child = _start(argv, log_dir / f"rank{number}.log" if rank and log_dir else None)
    if isinstance(child, OSError):
        return _refuse(f"cannot start {argv[0]}: {child}")
    import psutil  # noqa: F401 (imported now, so that killing need not wait for it)

    code, seen_bytes = _watch(child.pid, line, wake, memory_limit_mb)
    if rank and log_dir:
        _write_end(log_dir / f"rank{number}.end.json", code, oom_kills() - before, memory_limit_mb, seen_bytes)
    kill_below()
    return 128 - code if code < 0 else code


def _refuse(why: str) -> int:
    print(f"ringscope: {why}", file=sys.stderr)
    return CANNOT_START


def connect(lifeline: str) -> socket.socket:
    """Connect to a lifeline, `host:port/token`. A connection to a host that does not answer ends within 35 s. Raises
    OSError."""
    address, _, token = lifeline.partition("/")
    host, _, port = address.rpartition(":")
    line = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
    line.sendall(token.encode())
    line.settimeout(None)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    return line


def oom_kills() -> int:
    """The number of processes that this host's kernel has killed for lack of memory since boot; 0 if the kernel does
    not count them."""
    try:
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _wake_on_signals() -> int:
    """A file descriptor that gets a byte for each signal: when a child ends, or when this process is told to end."""
    wake, write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return wake


def _start(argv: list[str], log: Path | None) -> subprocess.Popen[bytes] | OSError:
    try:
        with log.open("ab") if log else contextlib.nullcontext() as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # If the keeper itself is killed, its child is killed too.
                preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
    except OSError as error:
        return error


def _watch(pid: int, line: socket.socket | None, wake: int, memory_limit_mb: int) -> tuple[int, int]:
    """Wait for the child's end. End the child if the lifeline closes, a signal asks for it, or its memory exceeds
    the limit. Returns its exit code and its peak memory in bytes (0 without a limit)."""
    deadline: float | None = None
    seen_bytes = 0
    while True:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        if memory_limit_mb:
            timeout = min(MEMORY_POLL_S, timeout or MEMORY_POLL_S)
            seen_bytes = max(seen_bytes, peak_bytes(pid))
            if seen_bytes > memory_limit_mb * MIB:
                kill_below()
        watched: list[Any] = [wake, line] if line else [wake]
        ready, _, _ = select.select(watched, [], [], timeout)
        if line and line in ready and not _alive(line):
            kill_below()
            line = None
        if wake in ready and set(os.read(wake, 512)) - {signal.SIGCHLD} and deadline is None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S
        code = _reap(pid)
        if code is not None:
            return code, seen_bytes
        if deadline is not None and time.monotonic() >= deadline:
            kill_below()
            deadline = time.monotonic() + GRACE_S


def peak_bytes(pid: int) -> int:
    """The peak host memory of a process in bytes; 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    peak = status.partition("VmHWM:")[2].split()  # a process that is ending has no line VmHWM
    return int(peak[0]) * 1024 if peak else 0


def _alive(line: socket.socket) -> bool:
    try:
        return line.recv(64) != b""
    except OSError:
        return False


def _reap(pid: int) -> int | None:
    """Reap every child that has ended. Returns the exit code of `pid` if it is among them; negative: the number of a
    signal."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = os.waitstatus_to_exitcode(status)


def kill_below() -> None:
    """Kill every descendant until none is left; orphans of a killed process become children of this process."""
    import psutil

    while True:
        living = [process for process in psutil.Process().children(recursive=True) if _living(process)]
        if not living:
            return
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.002)


def _living(process: Any) -> bool:
    import psutil

    try:
        return bool(process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.NoSuchProcess:
        return False


def _write_end(path: Path, code: int, killed_for_memory: int, memory_limit_mb: int, seen_bytes: int) -> None:
    # The kernel's two figures for peak memory differ slightly, as pages are counted per CPU: take the larger, so that a
    # child killed for its memory is always reported so.
    held = max(seen_bytes, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    over = {"over_memory_limit_mb": memory_limit_mb} if 0 < memory_limit_mb * MIB < held else {}
    end = {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "oom_kills": killed_for_memory,
        "max_rss_bytes": held,
        "host": socket.gethostname(),
        **over,
    }
    try:
        write_whole(path, json.dumps(end))
    except OSError as error:  # the exit code matters more than this file
        print(f"ringscope: cannot write {path}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
