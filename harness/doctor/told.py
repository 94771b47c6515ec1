"""The file in which a rank tells what is seen of it, and its end in the middle of the script."""

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
    """`rank<k>.jsonl`: a line at the start, one before the first step and one after each, and one at the end.

    steps: that are enough.
    """

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
        """Tell of a step; with the last that is asked for wait until all ranks are so far, and end in the middle of the
        script."""
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
        """A keeper tells of our launchers' ranks; the user's launchers have none."""
        if not self._failed and os.getpid() == self._pid:
            self._failed = bool(code)
            self.write({"kind": "end", "exit_code": code, "log": log[-20_000:], "at": time.time()})
