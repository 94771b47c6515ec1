"""Run a user's script or module inside this process, as Python itself would."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run(words: Sequence[str]) -> None:
    """Run `SCRIPT ...` or `-m MODULE ...`."""
    script = list(words)
    if script[0] == "-m":  # Python itself looks for modules in the current folder first
        sys.argv = script[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(script[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = script
        sys.path[0] = str(Path(script[0]).resolve().parent)
        runpy.run_path(script[0], run_name="__main__")
