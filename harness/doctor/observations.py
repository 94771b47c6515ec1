"""The file in which a rank records what doctor observes, and the early end of the rank's script."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

WORD_LIMIT_S = 120.0  # how long a rank waits after its last step until ringscope lets it end


class Told:
    """Writes `rank<k>.jsonl`: a line at the start, one before the first step, one after each step, and one at the
    end. steps: the number of steps to record; after the last of them the process ends."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps = folder, steps
        self.last: list[Callable[[], None]] = []  # called before the end is written
        self._tell, sys.excepthook = sys.excepthook, self._fails

    def begin(self, rank: int, size: int) -> None:
        """Open the file of rank `rank` of `size` and write this process's first line."""
        self._pid, self._failed = os.getpid(), False
        self._file = (self._folder / f"rank{rank}.jsonl").open("a")
        stacks = (self._folder / f"rank{rank}.stack").open("w")
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
        self.write({"kind": "process", "pid": os.getpid(), "argv": sys.orig_argv, "of": size})
        # processes of multiprocessing call no function of atexit
        Finalize(None, self._ends, exitpriority=100)

    def is_here(self) -> bool:
        """True in the process that called `begin`, False in processes forked from it."""
        return self._pid == os.getpid()

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def stepped(self, line: dict[str, Any]) -> None:
        """Write a step's line. After the last wanted step, wait until ringscope lets the rank end, then end the rank in
        the middle of its script."""
        self.write(line)
        if line["step"] < self._steps:
            return
        self.write({"kind": "done"})
        deadline = time.monotonic() + WORD_LIMIT_S
        while not (self._folder / "end").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _fails(self, kind: Any, error: Any, trace: Any) -> None:
        self._write_end(error)
        self._tell(kind, error, trace)

    def _ends(self) -> None:
        """Write the end of the process; under a user's launcher there is no keeper to write it."""
        for call in self.last:
            call()
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit) and error.code and error.__context__:  # mp.spawn exits where a rank failed
            error = error.__context__
        self._write_end(error)

    def _write_end(self, error: BaseException | None) -> None:
        if not self._failed and self.is_here():
            self._failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
            log = "".join(traceback.format_exception(error))[-20_000:] if error else ""
            self.write({"kind": "end", "exit_code": int(self._failed), "log": log, "at": time.time()})
