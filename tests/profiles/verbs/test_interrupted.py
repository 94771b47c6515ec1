"""Ctrl-C while a command starts, or reads: no traceback of imports, and no word of a damaged file."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
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
# Ctrl-C while Arrow's driver runs a query of some seconds in the file FILE.
READING = """
import os, signal, sys, threading
from pathlib import Path
from profiles.readers.tables.sqlite import arrow_cursor

QUERY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT i FROM n"
try:
    with arrow_cursor(Path(sys.argv[1])) as cursor:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            cursor.execute(QUERY)
            cursor.fetch_arrow_table()
except BaseException as error:
    print(type(error).__name__)
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


def test_ctrl_c_while_a_recording_is_read_is_no_damage(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "any.sqlite")) as connection:
        connection.execute("CREATE TABLE any (number INTEGER)")
        connection.commit()
    words = [sys.executable, "-c", READING, str(tmp_path / "any.sqlite")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "KeyboardInterrupt\n", "")
