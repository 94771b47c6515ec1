"""The script is begun again, in the same process: once a rank is lost, or hosts have come or gone.

`exec` keeps the process, and so its place with the launcher, its output and the commit in its memory; the rest of it,
threads, sockets and what lies on the GPU, goes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import launcher

__all__ = [
    "Before",
    "before",
    "begin",
    "carry",
    "check",
    "go_on",
    "instead_of",
    "is_of_lost_ranks",
    "leave_alone",
    "left",
    "paused_ns",
]

CARRIED = "RINGSCOPE_BEGUN_AGAIN"
BLOCKED_S = 10.0  # without a move inside an exchange, after a rank was lost: no exception will come
NEWS_S = 20.0  # after an exchange has failed, to hear that a rank was lost
# Errors of Horovod and Gloo when the other end of a connection is gone; no error of the script has these words.
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
    """A process's memory of the time before it began again.

    times: how often it began again. since_ns: when it knew that it could not go on, by time.monotonic_ns, which neither
    a new beginning nor a set clock changes. ranks: their number then. commit: the file descriptor of the commit. seed:
    of ring.init. failed: beginnings in a row in which Horovod did not start.
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
MEETINGS = ("ranks", "channel.py")  # the file in which ranks wait for each other
_lock = threading.Lock()
_left: str | None = None
_left_ns = 0
_changed = threading.Condition()
_alone = False


def before() -> Before:
    """What this process knows of the time before it began again; of a first beginning nothing: times is 0."""
    global _before
    if _before is None:
        told = os.environ.pop(CARRIED, "")  # programs that the script starts have begun nothing again
        _before = Before(**json.loads(told)) if told else Before()
        carry(commit=_before.commit, seed=_before.seed)
    return _before


def carry(**known: Any) -> None:
    """Have a next beginning know this."""
    global _next
    _next = replace(_next, **known)


def go_on() -> tuple[int, str] | None:
    """Called with the first step: the pause is over. Returns its length in ns and its reason; None if there was none,
    or if this was told before."""
    global _gone_on
    if _gone_on or not before().times:
        return None
    _gone_on = True
    return paused_ns(), before().why


def paused_ns() -> int:
    """Since this process knew that it could not go on, until now."""
    return time.monotonic_ns() - before().since_ns


def begin(why: str, since_ns: int | None = None) -> NoReturn:
    """Begin the script again. since_ns: as of `Before`, where it is not now."""
    _lock.acquire()  # and never release it: the first who asks ends all others
    since_ns = since_ns or time.monotonic_ns()
    if before().times and not _gone_on:  # one pause, of several beginnings
        since_ns, why = before().since_ns, before().why
    carried = replace(_next, times=before().times + 1, since_ns=since_ns, why=why)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Connections that stayed open would keep the other ranks waiting.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            try:
                os.set_inheritable(number, number == carried.commit)
            except OSError:
                continue  # that of the listing itself
    # The script will put its own variables into the environment again.
    words = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    os.chdir(_script_dir)
    os.execve(sys.executable, sys.orig_argv, environment | {CARRIED: json.dumps(asdict(carried))})


def left(what: str) -> None:
    """Called by the one who notices that a rank is lost, so that no exchange can be finished. This rank begins again
    when its main thread next asks (`check`, `instead_of`), or where it stands in an exchange that will not end."""
    global _left, _left_ns
    with _changed:
        if _alone or _left is not None:
            return
        _left, _left_ns = what, time.monotonic_ns()
        _changed.notify_all()
    threading.Thread(target=_begin_if_blocked, name="ring elastic", daemon=True).start()


def check() -> None:
    """Begin again if a rank is lost: to be asked where nothing is half done."""
    if _left is not None and not _alone:
        begin(_left, _left_ns)


def instead_of(error: BaseException) -> None:
    """Begin again if this error comes of a lost rank; returns if it is the script's own."""
    if launcher.is_elastic() and not _alone and is_of_lost_ranks(error):
        failed_ns = time.monotonic_ns()
        with _changed:
            _changed.wait_for(lambda: _left is not None, timeout=NEWS_S)
        if _left is not None and not _alone:
            begin(_left, min(failed_ns, _left_ns))


def is_of_lost_ranks(error: BaseException) -> bool:
    """True if an exchange ends so when the other end is gone; the script's own connections may end so, too."""
    text = f"{type(error).__name__}: {error}"
    return any(words in text for words in OF_LOST_RANKS)


def leave_alone() -> None:
    """The script ends: a rank that is lost from now on does not matter to it."""
    global _alone
    _alone = True


def _begin_if_blocked() -> None:
    """Begin again for a main thread that does not move any more, and stands in TensorFlow, Horovod or a meeting. One
    that writes a file, or computes, is let go on until it asks."""
    seen: Any = None
    since = time.monotonic()
    main = threading.main_thread().ident
    while not _alone:
        frame = sys._current_frames().get(main or 0)
        place = None if frame is None else (id(frame), frame.f_lasti)
        if place != seen:
            seen, since = place, time.monotonic()
        elif time.monotonic() - since > BLOCKED_S and frame is not None and _is_exchange(frame):
            assert _left is not None
            begin(_left, _left_ns)
        del frame
        time.sleep(0.25)


def _is_exchange(frame: FrameType) -> bool:
    file = Path(frame.f_code.co_filename)
    if file.name == "threading.py":  # a meeting of ring's; what else the script waits for is its own
        callers = [each.f_code.co_filename for each in (frame.f_back, frame.f_back and frame.f_back.f_back) if each]
        return any(Path(caller).parts[-2:] == MEETINGS for caller in callers)
    return bool({"tensorflow", "horovod"} & set(file.parts))
