"""docs/api.md: its examples run, print what the page says, and it names all that `ringscope` exports."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

import ringscope
from tests.docs.blocks import Block, blocks
from tests.recordings import ROOT

PAGE = ROOT / "docs" / "api.md"
TRAINING = "Train"  # this section's example is run by two ranks in tests/examples


def test_the_examples_run_in_the_order_of_the_page_and_print_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    reading = [block for block in blocks(PAGE) if block.heading != TRAINING]
    assert len(reading) >= 6 and sum(block.printed is not None for block in reading) >= 3
    for block in reading:
        assert block.printed in (None, _printed(block, names)), f"{PAGE}:{block.line}"


def _printed(block: Block, names: dict[str, object]) -> str:
    # Empty lines before it, so that a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(PAGE), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(code, names)
    return said.getvalue()


def test_the_page_names_all_that_the_package_exports() -> None:
    named = set(re.findall(r"`(?:ringscope\.)?(\w+)[`(]", PAGE.read_text()))
    assert set(ringscope.__all__) <= named


def test_the_page_names_all_of_ring() -> None:
    """Told by the sources: importing ring takes TensorFlow's seconds."""
    source = (ROOT / "ringscope" / "ring" / "__init__.py").read_text()
    exported = re.search(r"__all__ = \[(.*?)\]", source, re.DOTALL)
    assert exported is not None
    names = {name for name in re.findall(r'"(\w+)"', exported[1]) if not name.isupper()}
    assert names <= set(re.findall(r"`ring\.(\w+)\(", PAGE.read_text()))


@pytest.mark.exhaustive
def test_the_examples_are_typed_as_mypy_sees_them(tmp_path: os.PathLike[str]) -> None:
    script = os.path.join(tmp_path, "page.py")
    with open(script, "w") as file:
        file.write("\n".join(block.code for block in blocks(PAGE)))
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), script]
    environment = os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": ""}
    done = subprocess.run(mypy, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
