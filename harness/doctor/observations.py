"""The file in which a rank records what doctor observes, and the early end of the rank's script."""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ..machine import ranks

WORD_LIMIT_S = 120.0


class Told:
    """Writes `rank<k>.jsonl`: a line at the start, one before the first step, one after each step, and one at the
    end. steps: the number of steps to record; the script is ended after the last."""

    def __init__(self, folder: Path, rank: int, steps: int) -> None:
        self._folder, self._steps, self._failed = folder, steps, False
        self._file = (folder / f"rank{rank}.jsonl").open("a")
        stacks = (folder / f"rank{rank}.stack").open("w")
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
        self.write({"kind": "process", "pid": os.getpid(), "argv": sys.orig_argv, "of": ranks.size()})
        self._pid = os.getpid()
        tell, sys.excepthook = sys.excepthook, self._fails
        self._tell = tell
        atexit.register(self._ends, 0, "")

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
        self._ends(1, "".join(traceback.format_exception(kind, error, trace)))
        self._tell(kind, error, trace)

    def _ends(self, code: int, log: str) -> None:
        """Write the end of the process; under a user's launcher there is no keeper to write it."""
        if not self._failed and os.getpid() == self._pid:
            self._failed = bool(code)
            self.write({"kind": "end", "exit_code": code, "log": log[-20_000:], "at": time.time()})
