"""Wrong usage of any verb is one line that says what is wrong and where more is said, with exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings import ROOT

STEPS_3_TO_7 = "tests/data/resnet50-2gpu-device.rank0.sqlite.xz"
WRONG = [
    ("nosuch", "no such command 'nosuch'; `ringscope --help` says more"),
    ("timelin x", "no such command 'timelin'. Did you mean 'timeline'? `ringscope --help` says more"),
    ("--nosuch timeline x", "no such option '--nosuch'; `ringscope --help` says more"),
    ("timeline", "missing argument 'PATH...'; `ringscope timeline --help` says more"),
    ("timeline x --max-size -1", "invalid value for '--max-size': -1 is not in the range x>=1"),
    ("timeline x --window foo", "invalid value for '--window': 'foo' is not one of 'steps', 'capture'"),
    (
        f"timeline {STEPS_3_TO_7} --from-step 8",
        f"--from-step 8: {STEPS_3_TO_7} has no whole step from there on, its last is step 7; give a smaller number",
    ),
    (
        "timeline --jsn x",
        "no such option '--jsn'. Did you mean '--json'? `ringscope timeline --help` says more",
    ),
    ("timeline x --html", "option '--html' requires an argument; `ringscope timeline --help` says more"),
    ("timeline x --html out/", "--html out/: a directory; name a file"),
    ("cut x", "missing option '-o' / '--output'"),
    ("train", "missing option '--model'; `ringscope train --help` says more"),
    ("rules --pairs 2", "invalid value for '--pairs'"),
    ("bench --launches none", "invalid value for '--launches'"),
]
EMPTY = [
    ("timeline", "", "PATH..."),
    ("timeline", "x", "--json", "", "--json"),
    ("timeline", "x", "--charts", "", "--charts"),
    ("check", "", "PATH..."),
    ("compare", "x", "", "AFTER"),
    ("gate", "x", "--baseline", "", "--baseline"),
    ("gate", "x", "--history", "", "--history"),
    ("cut", "x", "-o", "", "-o' / '--output"),
    ("predict", "", "x", "[RUN | ONE TWO]"),
    ("report", "", "[DIRECTORY]"),
    ("bench", "--out", "", "--out"),
    ("infer", "--out", "", "--out"),
]
ONE = "import sys; from harness.verbs.cli import main; sys.argv[0] = 'ringscope'; main()"


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_wrong_usage_is_one_line(words: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", ONE, *words.split()], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ringscope: {said}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", EMPTY, ids=" ".join)
def test_an_empty_path_is_not_taken_for_the_working_directory(words: tuple[str, ...], tmp_path: Path) -> None:
    *typed, named = words
    done = subprocess.run(
        [sys.executable, "-c", ONE, *typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    said = f"ringscope: invalid value for '{named}': it is empty (a variable of your shell may not be set); "
    assert done.stderr == f"{said}`ringscope {typed[0]} --help` says more\n"


def test_a_call_without_a_verb_is_answered_with_the_help() -> None:
    done = subprocess.run([sys.executable, "-c", ONE], cwd=ROOT, capture_output=True, text=True)
    assert "Verbs:" in done.stdout + done.stderr
