"""docs/reference/command-line.md says what the commands themselves say."""

from __future__ import annotations

import subprocess
import sys

from tests.recordings import ROOT


def test_the_page_of_the_command_line_is_what_the_commands_say() -> None:
    code = "import scripts.command_line_page as made; print(made.page(), end='')"
    page = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    remedy = "an option or a help text changed: python scripts/command_line_page.py"
    assert page == (ROOT / "docs/reference/command-line.md").read_text(), remedy
