"""What the docs show of a command is what the command prints.

A block of `console` holds commands after `$` and, below each, lines of its output. A line `...` stands for any lines,
and how wide columns are does not matter.
Commands that only read what is in the repository are run, all of a block in one folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READS_ONLY = re.compile(
    r"(ringscope (timeline|compare|predict|cut|gate|report) .*(tests/data|docs/results)/|echo \$\?)"
)
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
BLOCKS = [(page, number, block) for page in PAGES for number, block in enumerate(BLOCK.findall(page.read_text()), 1)]


@pytest.mark.parametrize(
    ("page", "block"),
    [pytest.param(page, block, id=f"{page.relative_to(ROOT)}-{number}") for page, number, block in BLOCKS],
)
def test_a_command_prints_what_the_page_shows(page: Path, block: str, tmp_path: Path) -> None:
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    slow = [command for command in commands if not READS_ONLY.match(command)]
    assert not slow, "not to be run in a test: show it as ```text"
    for folder in ("tests", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    printed = iter(_printed(commands, tmp_path))
    said: list[str] = []
    for line in (_words(line) for line in block.splitlines()):
        if line.startswith("$ "):
            said = next(printed)
            anywhere = False
        elif line == "...":
            anywhere = True
        else:
            assert line in said if anywhere else said[:1] == [line], f"{line!r} is not printed, but:\n" + "\n".join(
                said
            )
            said = said[said.index(line) + 1 :]
            anywhere = False


def _printed(commands: list[str], folder: Path) -> list[list[str]]:
    """The lines that each command prints, run one after the other in one shell."""
    border = "=== next command ==="
    script = [f'ringscope() {{ "{sys.executable}" -m harness "$@"; }}']
    for command in commands:
        script += [f"(exit $last); echo '{border}'", f"(exit $last); {command} 2>&1", "last=$?"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    done = subprocess.run(
        ["bash", "-c", "last=0\n" + "\n".join(script)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    return [[_words(line) for line in part.splitlines()[1:]] for part in done.stdout.split(border)[1:]]


def _words(line: str) -> str:
    return " ".join(line.split())


def test_there_are_such_blocks() -> None:
    assert len(BLOCKS) >= 3
