"""What a recording by time does, it does on the script's main thread."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from traceback import walk_stack

import pytest

from harness.launch import main_thread
from tests.recordings import ROOT

IMPORTS = """
import threading, time
from harness.launch import main_thread
def see():
    import jax
    print(jax.WHOLE, threading.current_thread() is threading.main_thread())
    return True
thread = threading.Thread(target=main_thread.run, args=(see, threading.Event()))
import jax
while thread.is_alive():
    time.sleep(0.01)
"""
# a module that is under way for as long as many looks of the other thread take
HALF = """
import __main__, time
__main__.thread.start()
for _ in range(50):
    time.sleep(0.01)
WHOLE = True
"""


class Runs(threading.Thread):
    """A thread that lets `main_thread.run` run a function. by: the thread that ran the function; None if none did."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over, self.by, self.result = threading.Event(), list[threading.Thread](), None

    def run(self) -> None:
        self.result = main_thread.run(self._function, self.over)

    def _function(self) -> bool:
        self.by.append(threading.current_thread())
        return True


def test_the_main_thread_runs_the_function_between_two_steps_of_its_own() -> None:
    runs = Runs()
    runs.start()
    while runs.is_alive():
        sum(range(1000))
    assert runs.by == [threading.main_thread()] and runs.result is True


def test_no_function_runs_within_an_import_of_a_framework(tmp_path: Path) -> None:
    """PyTorch's profiler imports torch._inductor; half imported by two threads, it ended scripts by an ImportError."""
    (tmp_path / "jax.py").write_text(HALF)
    argv, environ = [sys.executable, "-c", IMPORTS], {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_thread_runs_the_function_itself_if_the_main_thread_only_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_thread, "PATIENCE_S", 0.0)
    runs, main = Runs(), threading.get_ident()

    class Starts(threading.Thread):
        def run(self) -> None:
            joins = threading.Thread.join.__code__
            while not any(frame.f_code is joins for frame, _ in walk_stack(sys._current_frames()[main])):
                time.sleep(0.05)
            time.sleep(0.2)  # now the main thread waits there
            runs.start()
            runs.join()

    starts = Starts()
    starts.start()
    starts.join()
    assert runs.by == [runs] and runs.result is True


def test_nothing_runs_once_all_is_over() -> None:
    runs = Runs()
    runs.over.set()
    runs.start()
    runs.join()
    assert (runs.by, runs.result) == ([], False)
    later = Runs()
    later.start()  # a later function leaves none of the earlier ones to run
    while later.is_alive():
        sum(range(1000))
    assert runs.by == [] and later.by == [threading.main_thread()]


def test_an_import_meanwhile_does_not_end_the_look_at_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of garbage runs within the look, and other threads import meanwhile (Python 3.11 and earlier)."""
    monkeypatch.setattr(sys, "modules", sys.modules | {f"jax.made{number}": sys for number in range(1000)})
    added = count()

    def imports(*_: object) -> None:
        sys.modules[f"jax.added{next(added)}"] = sys

    gc.callbacks.append(imports)
    threshold, enabled = gc.get_threshold(), gc.isenabled()  # a test before this one may have disabled it
    gc.set_threshold(1)
    gc.enable()
    try:
        assert not main_thread.imports()
    finally:
        gc.set_threshold(*threshold)
        if not enabled:
            gc.disable()
        gc.callbacks.remove(imports)
    assert next(added) > 0 or sys.version_info >= (3, 12)
