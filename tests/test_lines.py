"""Lines that tests run (tests/lines.py) are those of all processes, killed ones too."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import lines

PRODUCT = """\
import os, signal

def asked(kill):
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    elif os.fork():
        os.wait()
    else:
        forked = 1
        os._exit(0)
    return 2

def never():
    return 3
"""
TEST = """\
import subprocess, sys
from profiles.it import asked
def test_forked(): asked(False)
def test_killed(): subprocess.run([sys.executable, "-c", "from profiles.it import asked; asked(True)"], env={})
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_lines_of_killed_and_forked_processes_count(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "__init__.py").touch()
    (tmp_path / "profiles" / "it.py").write_text(PRODUCT)
    (tmp_path / "test_it.py").write_text(TEST)
    either = {1, 3, 4, 13}
    forked, killed = either | {6, 7, 9, 10, 11}, either | {5}
    for words, wanted in ((["-k", "forked"], forked), (["-k", "killed"], killed), ([], forked | killed)):
        code, found = lines.run([*words, "-q", "-p", "no:cacheprovider"], tmp_path)
        assert code == 0 and {file: set(numbers) for file, numbers in found.items()} == {"profiles/it.py": wanted}
    assert not capfd.readouterr().err


def test_lines_of_one_run_alone_are_listed_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {"a": {"x.py": [1, 2, 5], "y.py": [1]}, "b": {"x.py": [1]}, "c": {"x.py": [5, 6], "y.py": [1]}}
    for name, found in runs.items():
        (tmp_path / name).write_text(json.dumps(found))
    assert lines.main(["only", *(str(tmp_path / name) for name in "abc")]) == 0
    assert capsys.readouterr().out.split() == ["1", "x.py:", "2", "1", "lines", "of", "1", "files"]
