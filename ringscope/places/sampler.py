"""Where all other Python of the process was: a thread looks at the others' frames some hundred times a second.

Of each thread it keeps the innermost line of the user's, and what of a library that line has called. The file
`rank<k>.places.json` beside a recording holds them (docs/reference/files.md), with times of the process's own clock;
marks `clock N` in the recording bring them onto that of the recording.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from profiles.model import marks

from . import whose
from .ranges import writer

HZ: Final = 200
# Of a core, for looking: the thread that is looked at loses about as much again, as it hands over Python's lock.
BUDGET: Final = 0.004
_FIRST_NS: Final = 60_000  # what a look may take, until it is known
_CLOCK_EVERY_NS: Final = 250_000_000
# Modules in which a thread that waits stays for long: their frame tells that nothing has changed.
_WAITING: Final = ("threading.py", "queue.py", "selectors.py", "socket.py", "connection.py", "thread.py")


class Seen(NamedTuple):
    """A line of the user's, and the call of a library's that it is in, "" for none."""

    file: str
    line: int
    function: str
    via: str
    framework: bool  # that library is what trains


class Sampler:
    """From `start` to `stop`, which writes the file; both by any thread.

    path: of the file. hz: samples a second at most, fewer where looking takes more than its budget. steps: the identity
    of the thread that runs the steps, asked for at each sample.
    """

    def __init__(self, path: Path, steps: Callable[[], int], hz: int = HZ) -> None:
        self._path, self._steps, self._hz = path, steps, hz
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._places: dict[Seen, int] = {}
        # per thread the samples: from when, when they were taken, until when, place, number of the look
        self._spans: dict[int, list[list[int]]] = {}
        self._blocked: dict[int, tuple[int, int, int | None]] = {}
        self._stepping: set[int] = set()
        self._source: dict[Seen, str] = {}
        self.count = 0

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
        least = period = 1_000_000_000 // self._hz
        own, before = threading.get_ident(), time.monotonic_ns()
        clock_ns, took_ns, used_ns = 0, _FIRST_NS, time.thread_time_ns()
        while not self._over.is_set():
            time.sleep(period / 1e9)
            now = time.monotonic_ns()
            if now - clock_ns >= _CLOCK_EVERY_NS:
                clock_ns = time.monotonic_ns()
                writer().end(writer().begin(marks.clock(clock_ns)))
                now = time.monotonic_ns()
            # Woken, it may have waited for Python's lock: what held that is what is seen now.
            since = (before + min(before + period, now)) // 2
            self._look(own, since, now)
            before, used = now, time.thread_time_ns()
            took_ns += (used - used_ns - took_ns) // 8
            used_ns, period = used, max(least, int(took_ns / BUDGET))

    def _look(self, own: int, since: int, now: int) -> None:
        """A sample holds from halfway to the one before until now, and until the next one moves that end."""
        self.count += 1
        stepping = self._steps()
        self._stepping.add(stepping)
        for thread, frame in sys._current_frames().items():
            if thread == own:
                continue
            place = self._place(thread, frame)
            spans = self._spans.setdefault(thread, [])
            last = spans[-1] if spans else None
            if last is not None and last[4] == self.count - 1:
                last[2] = since
            spans.append([since, now, now, place, self.count])

    def _place(self, thread: int, frame: FrameType) -> int:
        """The number of its place, -1 for none."""
        known = self._blocked.get(thread)
        if known is not None and known[0] == id(frame) and known[1] == frame.f_lasti:
            return -1 if known[2] is None else known[2]
        found = seen(frame)
        place = None if found is None else self._places.setdefault(found, len(self._places))
        if frame.f_code.co_filename.endswith(_WAITING):
            self._blocked[thread] = id(frame), frame.f_lasti, place
        else:
            self._blocked.pop(thread, None)
        return -1 if place is None else place

    def _write(self) -> None:
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


def seen(frame: FrameType) -> Seen | None:
    """The innermost line of the user's above which no framework runs its steps; None where there is none."""
    at: FrameType | None = frame
    below: FrameType | None = None
    framework = False
    while at is not None:
        told = whose.about(at.f_code)
        if told.owner == whose.USER:
            via = f"{_module(below)}.{whose.qualified(below)}" if below is not None else _lock(at)
            return Seen(whose.shown(at.f_code.co_filename), at.f_lineno, whose.qualified(at), via, framework)
        if told.drives:
            return None
        framework = framework or told.framework
        if not told.ours:
            below = at
        at = at.f_back
    return None


# What a line takes that may be held by another thread: `with NAME:`, `NAME.acquire(`.
_TAKES: Final = re.compile(r"\bwith\s+([A-Za-z_][\w.]*)\s*:|([A-Za-z_][\w.]*)\.acquire\(")
_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
_locks: dict[tuple[int, int], str] = {}  # by code and line: asked once


def _lock(frame: FrameType) -> str:
    """`threading.Lock` where the line takes a lock: taking one is no call of Python's that a frame would show."""
    key = id(frame.f_code), frame.f_lineno
    known = _locks.get(key)
    if known is None:
        match = _TAKES.search(linecache.getline(whose.path_of(frame.f_code.co_filename), frame.f_lineno))
        taken = match is not None and isinstance(_value(frame, match[1] or match[2]), _LOCKS)
        known = _locks[key] = "threading.Lock" if taken else ""
    return known


def _value(frame: FrameType, name: str) -> Any:
    """What a dotted name is there, without running any code of the object's; None where that does not tell."""
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
