"""Ctrl-C while a command starts: no traceback of imports."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# `ringscope WORDS...`, to which Ctrl-C comes when it looks for the module MODULE.
STARTED = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupts())
runpy.run_module("ringscope", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("click", -signal.SIGINT, ""),
        ("profiles.verbs.timeline", -signal.SIGINT, ""),
        ("profiles.measuring.analysis", 130, "\nringscope: interrupted\n"),
    ],
)
def test_ctrl_c_ends_a_command_without_a_traceback(module: str, code: int, said: str) -> None:
    words = [sys.executable, "-c", STARTED, module, "timeline", str(ROOT / "README.md")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)
