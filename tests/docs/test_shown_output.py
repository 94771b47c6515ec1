"""What the docs show of a command is what the command prints.

A block of `console` holds commands after `$` and, below each, its output. A line `...` stands for any lines. Where
lines break and how wide columns are does not matter.
Commands that only read what is in the repository are run, all of a block in one folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.recordings import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READS_ONLY = re.compile(
    r"ringscope (timeline|check|compare|predict|cut|gate|report) .*(tests/data|docs/results)/"
    r"|ringscope predict --points|python -m benchmarks.horovod_512|echo \$\?"
)
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
BLOCKS = [(page, number, block) for page in PAGES for number, block in enumerate(BLOCK.findall(page.read_text()), 1)]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("page", "block"),
    [pytest.param(page, block, id=f"{page.relative_to(ROOT)}-{number}") for page, number, block in BLOCKS],
)
def test_a_command_prints_what_the_page_shows(page: Path, block: str) -> None:
    commands = tuple(line[2:] for line in block.splitlines() if line.startswith("$ "))
    slow = [command for command in commands if not READS_ONLY.match(command)]
    assert not slow, "not to be run in a test: show it as ```text"
    for command, shown, said in zip(commands, _shown(block), _printed(commands), strict=True):
        at = 0
        for number, piece in enumerate(shown):
            found = said.find(piece, at)
            assert found >= 0 and (number or not found), f"{command} does not print {piece!r}, but:\n{said}"
            at = found + len(piece)


def _shown(block: str) -> list[list[str]]:
    """Below each command what is shown of its output: the pieces between the lines `...`, the first from the start."""
    each = re.split(r"^\$ .*\n", block, flags=re.MULTILINE)[1:]
    return [[_words(piece) for piece in re.split(r"^\.\.\.$", output, flags=re.MULTILINE)] for output in each]


@cache
def _printed(commands: tuple[str, ...]) -> list[str]:
    """What each command prints, run one after the other in one shell, in a folder where tests/ and docs/ are."""
    border = "=== next command ==="
    script = [f'ringscope() {{ "{sys.executable}" -m harness "$@"; }}', f'python() {{ "{sys.executable}" "$@"; }}']
    for command in commands:
        script += [f"(exit $last); echo '{border}'", f"(exit $last); {command} 2>&1", "last=$?"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tests", "docs"):
            Path(folder, name).symlink_to(ROOT / name)
        shell = ["bash", "-c", "last=0\n" + "\n".join(script)]
        done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return [_words(part) for part in done.stdout.split(border)[1:]]


def _words(text: str) -> str:
    return " ".join(text.split())


def test_at_least_three_blocks_of_output_are_compared() -> None:
    assert len(BLOCKS) >= 3
