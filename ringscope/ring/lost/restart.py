"""Restart the script in its process, once a rank is lost or hosts were added or removed.

`exec` keeps the process, its registration at the launcher, its output, and the commit in its memory. Threads, sockets
and GPU memory are freed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ..internals import main_thread
from . import launcher

CARRIED = "RINGSCOPE_BEGUN_AGAIN"
# seconds that a rank may wait inside an exchange; after them no exception of the exchange is expected any more
BLOCKED_S = 10.0
NEWS_S = 20.0  # seconds to wait, after an exchange has failed, for the message that a rank is lost
# Parts of errors that Horovod and Gloo raise if the other end of a connection is gone.
OF_LOST_RANKS = (
    "Horovod has been shut down",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "Timed out waiting",
    "Socket closed",
)


@dataclass(frozen=True)
class Before:
    """A process's memory of the time before its script restarted.

    times: number of restarts. since_ns: when the process found that it could not continue, by time.monotonic_ns, which
    neither a restart nor a change of the clock affects. ranks: number of ranks at that time. commit: the commit's file
    descriptor. seed: the seed of ring.init. failed: consecutive restarts in which Horovod did not start.
    """

    times: int = 0
    since_ns: int = 0
    why: str = ""
    ranks: int = 0
    commit: int | None = None
    seed: int | None = None
    failed: int = 0


_before: Before | None = None
_next = Before()
_gone_on = False
_script_dir = os.getcwd()
_lock = threading.Lock()
_left: str | None = None
_left_ns = 0
_changed = threading.Condition()
_alone = False


def before() -> Before:
    """The facts that this process knew before its script was restarted; at the first start `times` is 0."""
    global _before
    if _before is None:
        told = os.environ.pop(CARRIED, "")  # removed, because programs that the script starts are no restarted ranks
        _before = Before(**json.loads(told)) if told else Before()
        carry(commit=_before.commit, seed=_before.seed)
    return _before


def carry(**known: Any) -> None:
    """Pass these values to the next restart."""
    global _next
    _next = replace(_next, **known)


def go_on() -> tuple[int, str] | None:
    """Note, at the first step, that the pause is over. Returns (the pause's length in ns, its reason); None if there
    was no pause, or if it was already returned."""
    global _gone_on
    if _gone_on or not before().times:
        return None
    _gone_on = True
    return paused_ns(), before().why


def paused_ns() -> int:
    """Nanoseconds since this process found that it could not continue."""
    return time.monotonic_ns() - before().since_ns


def begin(why: str, since_ns: int | None = None) -> NoReturn:
    """Restart the script. since_ns: when it could not continue, as in `Before`; None: now."""
    _lock.acquire()  # never released: the first caller ends all other threads
    since_ns = since_ns or time.monotonic_ns()
    if before().times and not _gone_on:  # several restarts without a step between them are one pause
        since_ns, why = before().since_ns, before().why
    carried = replace(_next, times=before().times + 1, since_ns=since_ns, why=why)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # If connections stayed open, the other ranks would go on waiting.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            try:
                os.set_inheritable(number, number == carried.commit)
            except OSError:
                continue  # the descriptor by which this loop lists the others
    # The environment as it was when the process started, because the script will set its own variables again.
    words = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    os.chdir(_script_dir)
    os.execve(sys.executable, sys.orig_argv, environment | {CARRIED: json.dumps(asdict(carried))})


def left(what: str) -> None:
    """Note that a rank is lost, so that no exchange can finish. The script restarts when its main thread next asks
    (by `check` or `instead_of`), or when it is stuck in an exchange."""
    global _left, _left_ns
    with _changed:
        if _alone or _left is not None:
            return
        _left, _left_ns = what, time.monotonic_ns()
        _changed.notify_all()
    threading.Thread(target=_begin_if_blocked, name="ring elastic", daemon=True).start()


def check() -> None:
    """Restart if a rank is lost. Call this where no work is half done."""
    if _left is not None and not _alone:
        begin(_left, _left_ns)


def instead_of(error: BaseException) -> None:
    """Restart if a lost rank caused this error; return if the error is the script's own."""
    if launcher.is_elastic() and not _alone and is_of_lost_ranks(error):
        failed_ns = time.monotonic_ns()
        with _changed:
            _changed.wait_for(lambda: _left is not None, timeout=NEWS_S)
        if _left is not None and not _alone:
            begin(_left, min(failed_ns, _left_ns))


def is_of_lost_ranks(error: BaseException) -> bool:
    """True if an exchange may raise this error when the other end is gone. The script's own connections may raise it,
    too."""
    text = f"{type(error).__name__}: {error}"
    return any(words in text for words in OF_LOST_RANKS)


def leave_alone() -> None:
    """Ignore lost ranks from now on, because the script ends."""
    global _alone
    _alone = True


def _begin_if_blocked() -> None:
    """Restart if the main thread is stuck in TensorFlow, Horovod or a meeting. A main thread that writes a file, or
    computes, may continue until it asks."""
    seen: Any = None
    since = time.monotonic()
    while not _alone:
        frame = main_thread.frame()
        place = None if frame is None else (id(frame), frame.f_lasti)
        if place != seen:
            seen, since = place, time.monotonic()
        elif time.monotonic() - since > BLOCKED_S and frame is not None and main_thread.may_exchange(frame):
            assert _left is not None
            begin(_left, _left_ns)
        del frame
        time.sleep(0.25)
