"""Sample all Python code that has no range: a thread reads the other threads' frames up to 200 times a second.

For each thread the sampler keeps the innermost line of the user's code, and the library call made by that line. The
file `rank<k>.places.json` beside a recording holds the samples (docs/reference/files.md), with times of the process's
own clock; marks `clock N` in the recording map them to the recording's clock.
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

from profiles.ground.files import write_whole
from profiles.model import marks

from . import whose
from .ranges import Place, writer

HZ: Final = 200
# The part of a core's time that sampling may take. The sampled thread loses about as much again, because it hands over
# Python's lock.
BUDGET: Final = 0.004
# Number of sample durations whose median sets the sampling rate. A mean would not do, because the first sample of a new
# line takes many times as long.
_LOOKS: Final = 5
# ring's function in the place of Keras's `fit`: its caller waits for the whole training, too.
FIT: Final = "distributed"
# A thread hands over Python's lock after this many seconds, or when it leaves Python. With Python's default, 5 ms, a
# sample due within 3 ms of Python code would only see what comes after that code.
_SWITCH_S: Final = 0.0002
_CLOCK_EVERY_NS: Final = 250_000_000
# Threads wait in functions of these files: while a thread's innermost frame is in one of them and has not moved, its
# last sample still holds.
_WAITING: Final = ("threading.py", "queue.py", "selectors.py", "socket.py", "connection.py", "thread.py")


class Seen(NamedTuple):
    """A line of the user's code. via: the library call that the line makes, "" for none."""

    file: str
    line: int
    function: str
    via: str
    framework: bool  # True if the call goes to a library of whose.FRAMEWORKS


class Sampler:
    """Samples the frames of all threads from `start` to `stop`, which writes the file. Any thread may call both.

    path: the file. hz: highest number of samples per second; there are fewer if sampling exceeds its budget. steps:
    returns the id of the thread that runs the steps. throughout: returns the place that makes batches during the whole
    recording, if known.
    """

    def __init__(
        self, path: Path, steps: Callable[[], int], hz: int = HZ, throughout: Callable[[], Place | None] = lambda: None
    ) -> None:
        self._path, self._steps, self._hz, self._throughout = path, steps, hz, throughout
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._places: dict[Seen, int] = {}
        # by code object and instruction: nearly all samples find their place here (`about` keeps the code objects
        # alive)
        self._known: dict[tuple[int, int, int, bool], int] = {}
        # per thread: its samples [begin, time taken, end, place], and its last sample, whose end still moves
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
        """Stop sampling and write the file; does nothing if sampling never started."""
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
        draws = random.Random()  # a random generator of its own, so that the script's random numbers do not change
        while not self._over.is_set():
            # random pauses, so that samples do not keep step with a loop of that length
            wait_ns = int(period * (0.5 + draws.random()))
            time.sleep(wait_ns / 1e9)
            now = time.monotonic_ns()
            if now - clock_ns >= _CLOCK_EVERY_NS:
                clock_ns = time.monotonic_ns()
                writer().end(writer().begin(marks.clock(clock_ns)))
                now = time.monotonic_ns()
            # While the sampler waited for Python's lock, the thread seen now may have held the lock, in the line where
            # it is now.
            since = (before + min(before + wait_ns, now)) // 2
            begun_ns = time.thread_time_ns()
            self._look(own, since, now)
            before = now
            took_ns.append(time.thread_time_ns() - begun_ns)
            if len(took_ns) > 1:  # the very first sample knows no line and takes longer, so it does not count
                period = max(least, int(statistics.median_low(took_ns) / BUDGET))

    def _look(self, own: int, since: int, now: int) -> None:
        """Take a sample of each thread. It is valid from halfway to the previous sample until the next sample moves its
        end.

        A thread that keeps waiting gets one sample for all that time, which costs almost nothing, unless it runs the
        steps: most threads of a training only wait.
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
        """The number of the thread's place; -1 if it runs none of the user's code."""
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
            "places": [  # with the text of the line, on which the remedy depends
                {**one._asdict(), "source": linecache.getline(whose.path_of(one.file), one.line).strip()[:160]}
                for one in self._places
            ],
            "threads": threads,
        }
        write_whole(self._path, json.dumps(told) + "\n")


def _users(frame: FrameType) -> tuple[FrameType, FrameType | None, bool] | None:
    """(innermost frame of the user's code, the frame that it has called, True if a framework's frame is below it); None
    if there is no such frame, or if a framework runs its steps below it."""
    at: FrameType | None = frame
    below: FrameType | None = None
    framework = False
    while at is not None:
        told = whose.about(at.f_code)
        if told.owner == whose.USER:
            return at, below, framework
        if told.drives or (told.ours and at.f_code.co_name == FIT):
            return None
        framework = framework or told.framework
        if not told.ours:
            below = at
        at = at.f_back
    return None


def _seen(at: FrameType, below: FrameType | None, framework: bool) -> Seen:
    via = f"{_module(below)}.{whose.qualified(below)}" if below is not None else _lock(at)
    return Seen(whose.shown(at.f_code.co_filename), at.f_lineno, whose.qualified(at), via, framework)


# A line that takes a lock, which another thread may hold: `with NAME:`, `with NAME,`, `NAME.acquire(`.
_TAKES: Final = re.compile(r"\bwith\s+([A-Za-z_][\w.]*)\s*[:,]|([A-Za-z_][\w.]*)\.acquire\(")
_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)


def _lock(frame: FrameType) -> str:
    """`threading.Lock` if the line takes a lock, else "". No frame shows a lock, because it is not taken in Python
    code."""
    match = _TAKES.search(linecache.getline(whose.path_of(frame.f_code.co_filename), frame.f_lineno))
    taken = match is not None and isinstance(_value(frame, match[1] or match[2]), _LOCKS)
    return "threading.Lock" if taken else ""


def _value(frame: FrameType, name: str) -> Any:
    """The value of a dotted name in a frame, found without running the object's code; None if it is not found."""
    first, *rest = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for one in rest:
        value = inspect.getattr_static(value, one, None)
    return value


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def main_thread() -> int:
    return int(threading.main_thread().ident or 0)


def of_rank(folder: Path, rank: str, steps: Callable[[], int], **options: Any) -> Sampler:
    """The sampler of a rank; its file lies beside the rank's recording."""
    return Sampler(folder / f"rank{rank}{marks.SAMPLES}", steps, **options)
