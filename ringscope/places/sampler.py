"""Samples of all Python that has no range: a thread reads the other threads' frames up to 200 times a second.

Of each thread it keeps the innermost line of the user's, and what of a library that line has called. The file
`rank<k>.places.json` beside a recording holds them (docs/reference/files.md), with times of the process's own clock;
marks `clock N` in the recording bring them onto that of the recording.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
import random
import re
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from profiles.model import marks

from . import whose
from .ranges import Place, writer

HZ: Final = 200
# Of a core, for looking: the thread that is looked at loses about as much again, as it hands over Python's lock.
BUDGET: Final = 0.004
_LOOKS: Final = 5  # the median of as many sets the pace: a new line's first look takes many times as long
# A thread hands over Python's lock when it has held it for so long, or when it leaves Python: with Python's 5 ms, a
# sampler that is due in the middle of 3 ms of Python would see what comes after it.
_SWITCH_S: Final = 0.0002
_CLOCK_EVERY_NS: Final = 250_000_000
# Modules in which a thread that waits stays for long: their frame tells that nothing has changed.
_WAITING: Final = ("threading.py", "queue.py", "selectors.py", "socket.py", "connection.py", "thread.py")


class Seen(NamedTuple):
    """A line of the user's, and the call of a library's that it is in, "" for none."""

    file: str
    line: int
    function: str
    via: str
    framework: bool  # that library trains


class Sampler:
    """Samples the frames of all threads from `start` to `stop`, which writes the file. Any thread may call both.

    path: of the file. hz: samples a second at most, fewer where looking takes more than its budget. steps: the identity
    of the thread that runs the steps, asked for at each sample. throughout: what makes the batches meanwhile.
    """

    def __init__(
        self, path: Path, steps: Callable[[], int], hz: int = HZ, throughout: Callable[[], Place | None] = lambda: None
    ) -> None:
        self._path, self._steps, self._hz, self._throughout = path, steps, hz, throughout
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._places: dict[Seen, int] = {}
        # by code and instruction: a look that meets a known one has little to do, and most are (about keeps the code)
        self._known: dict[tuple[int, int, int, bool], int] = {}
        # per thread the samples: from when, when they were taken, until when, place; and the last one, which goes on
        self._spans: dict[int, list[list[int]]] = {}
        self._last: dict[int, list[int]] = {}
        self._waits: dict[int, tuple[int, int]] = {}
        self._stepping: set[int] = set()
        self.count = self._now = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ringscope sampler", daemon=True)
        self._began_ns, self._began_utc_ns = time.monotonic_ns(), time.time_ns()
        self._thread.start()

    def stop(self) -> None:
        """Writes what was seen; nothing where it never started."""
        if self._thread is None:
            return
        self._over.set()
        self._thread.join()
        self._thread = None
        self._write()

    def _run(self) -> None:
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(min(switch_s, _SWITCH_S))
        try:
            with self._throughout() or nullcontext():
                self._sample()
        finally:
            sys.setswitchinterval(switch_s)

    def _sample(self) -> None:
        least = period = 1_000_000_000 // self._hz
        own, before = threading.get_ident(), time.monotonic_ns()
        clock_ns, took_ns = 0, deque[int](maxlen=_LOOKS)
        draws = random.Random()  # the script's own generator draws what it would draw without samples
        while not self._over.is_set():
            wait_ns = int(period * (0.5 + draws.random()))  # in no step with a loop of that length
            time.sleep(wait_ns / 1e9)
            now = time.monotonic_ns()
            if now - clock_ns >= _CLOCK_EVERY_NS:
                clock_ns = time.monotonic_ns()
                writer().end(writer().begin(marks.clock(clock_ns)))
                now = time.monotonic_ns()
            # Woken, it may have waited for Python's lock: what held that is what is seen now.
            since = (before + min(before + wait_ns, now)) // 2
            begun_ns = time.thread_time_ns()
            self._look(own, since, now)
            before = now
            took_ns.append(time.thread_time_ns() - begun_ns)
            if len(took_ns) > 1:  # the first look of all meets no line that it knows
                period = max(least, int(statistics.median_low(took_ns) / BUDGET))

    def _look(self, own: int, since: int, now: int) -> None:
        """A sample holds from halfway to the one before until now, and until the next one moves that end.

        A thread that waits on, other than the one that runs the steps, has one sample of all that time, and costs a
        look no more than to see that: most threads of a training do nothing else.
        """
        self.count, self._now = self.count + 1, now
        stepping = self._steps()
        self._stepping.add(stepping)
        frames = sys._current_frames()
        del frames[own]
        for thread in self._last.keys() - frames.keys():
            self._last.pop(thread)[2] = since
            self._waits.pop(thread, None)
        for thread, frame in frames.items():
            known = self._waits.get(thread)
            waits = known is not None and known[0] == id(frame) and known[1] == frame.f_lasti
            if waits and thread != stepping:
                continue
            last = self._last.get(thread)
            if last is not None:
                last[2] = since
            place = last[3] if waits and last is not None else self._place(thread, frame)
            self._last[thread] = span = [since, now, now, place]
            self._spans.setdefault(thread, []).append(span)

    def _place(self, thread: int, frame: FrameType) -> int:
        """The number of its place, -1 for none."""
        if frame.f_code.co_filename.endswith(_WAITING):
            self._waits[thread] = id(frame), frame.f_lasti
        else:
            self._waits.pop(thread, None)
        found = _users(frame)
        if found is None:
            return -1
        at, below, framework = found
        key = id(at.f_code), at.f_lasti, 0 if below is None else id(below.f_code), framework
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = self._places.setdefault(_seen(*found), len(self._places))
        return place

    def _write(self) -> None:
        for span in self._last.values():
            span[2] = self._now
        threads = [
            {
                "steps": thread in self._stepping,
                "start_ns": [one[0] for one in kept],
                "at_ns": [one[1] for one in kept],
                "end_ns": [one[2] for one in kept],
                "place": [one[3] for one in kept],
            }
            for thread, spans in self._spans.items()
            if (kept := [one for one in spans if one[3] >= 0])
        ]
        told = {
            "schema": marks.SAMPLES_SCHEMA,
            "pid": os.getpid(),
            "hz": self._hz,
            "samples": self.count,
            "began_ns": self._began_ns,
            "began_utc_ns": str(self._began_utc_ns),
            "places": [{**one._asdict(), "source": _source(one)} for one in self._places],
            "threads": threads,
        }
        beside = self._path.with_name(f".{self._path.name}.partial")
        beside.write_text(json.dumps(told) + "\n")
        beside.replace(self._path)


def _users(frame: FrameType) -> tuple[FrameType, FrameType | None, bool] | None:
    """The innermost frame of the user's, what it has called, and whether a framework's is below it; None where there is
    none, or where a framework runs its steps below it."""
    at: FrameType | None = frame
    below: FrameType | None = None
    framework = False
    while at is not None:
        told = whose.about(at.f_code)
        if told.owner == whose.USER:
            return at, below, framework
        if told.drives:
            return None
        framework = framework or told.framework
        if not told.ours:
            below = at
        at = at.f_back
    return None


def _seen(at: FrameType, below: FrameType | None, framework: bool) -> Seen:
    via = f"{_module(below)}.{whose.qualified(below)}" if below is not None else _lock(at)
    return Seen(whose.shown(at.f_code.co_filename), at.f_lineno, whose.qualified(at), via, framework)


# A lock that a line takes, which another thread may hold: `with NAME:`, `with NAME,`, `NAME.acquire(`.
_TAKES: Final = re.compile(r"\bwith\s+([A-Za-z_][\w.]*)\s*[:,]|([A-Za-z_][\w.]*)\.acquire\(")
_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)


def _lock(frame: FrameType) -> str:
    """`threading.Lock` where the line takes a lock: taking one is no call of Python's that a frame would show."""
    match = _TAKES.search(linecache.getline(whose.path_of(frame.f_code.co_filename), frame.f_lineno))
    taken = match is not None and isinstance(_value(frame, match[1] or match[2]), _LOCKS)
    return "threading.Lock" if taken else ""


def _value(frame: FrameType, name: str) -> Any:
    """The value of a dotted name in a frame, found without running any code of the object; None: not found."""
    first, *rest = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for one in rest:
        value = inspect.getattr_static(value, one, None)
    return value


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _source(one: Seen) -> str:
    """The line's text, by which the remedy is chosen."""
    return linecache.getline(whose.path_of(one.file), one.line).strip()[:160]


def main_thread() -> int:
    return int(threading.main_thread().ident or 0)


def of_rank(folder: Path, rank: str, steps: Callable[[], int], **options: Any) -> Sampler:
    """Its file lies beside the rank's recording."""
    return Sampler(folder / f"rank{rank}{marks.SAMPLES}", steps, **options)
