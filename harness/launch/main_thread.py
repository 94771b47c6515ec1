"""Run a function on the script's main thread, between two steps of its Python code.

A profiler that another thread opens may end the script: its imports (`torch._inductor`) meet those of the script half
done, and a process that the script forks meanwhile inherits the profiler's locks.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import chain
from traceback import walk_stack

PATIENCE_S = 10.0  # a main thread that runs no Python for so long waits in C code, and neither imports nor forks
_FRAMEWORKS = ("jax", "jaxlib", "keras", "tensorflow", "tf_keras", "torch")
_COMPILES = os.path.join("torch", "utils", "cpp_extension.py")  # DeepSpeed's operations too
_LOOK_S = 0.1  # seconds between looks whether the main thread has run the function
_asked: deque[Callable[[], None]] = deque()


def _run_asked(_: int | None) -> int:
    try:
        asked = _asked.popleft()
    except IndexError:  # another thread has taken it
        return 0
    asked()
    return 0


_RUN_ASKED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_asked)  # must live as long as the process


def run(function: Callable[[], bool], over: threading.Event) -> bool:
    """Run `function` once no framework is being imported, and return its result; False if `over` is set before. The
    main thread runs it, or this thread if the main thread waits in C code, for example for threads that train."""
    ran, results, pid = threading.Event(), list[bool](), os.getpid()

    def asked() -> None:
        # a process that was forked meanwhile comes here too
        if os.getpid() == pid and not over.is_set() and not imports():
            results.append(function())
        ran.set()

    while not over.is_set() and not results:
        ran.clear()
        _asked.append(asked)
        if threading.current_thread() is threading.main_thread():
            _run_asked(None)
        else:
            ctypes.pythonapi.Py_AddPendingCall(_RUN_ASKED, None)
        ends_s = time.monotonic() + PATIENCE_S
        while not ran.wait(_LOOK_S) and not over.is_set():
            if time.monotonic() > ends_s:
                _run_asked(None)
        over.wait(0 if results else _LOOK_S)
    return bool(results and results[0])


def imports() -> bool:
    """True while any thread imports a part of a framework."""
    specs = (
        getattr(module, "__spec__", None)
        for name, module in sys.modules.copy().items()  # a list of the items may let another thread import meanwhile
        if name.partition(".")[0] in _FRAMEWORKS
    )
    return any(getattr(spec, "_initializing", False) for spec in specs)


def compiles() -> bool:
    """True while PyTorch compiles C++ or CUDA code for any thread, or a thread waits for another rank that does so."""
    frames = chain.from_iterable(map(walk_stack, sys._current_frames().values()))
    return any(frame.f_code.co_filename.endswith(_COMPILES) for frame, _ in frames)
