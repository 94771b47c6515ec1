"""README's picture can be made again."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import CHROMIUM
from tests.recordings import ROOT

SCRIPT = ROOT / "scripts" / "page_picture.py"


@pytest.mark.exhaustive
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
def test_the_picture_is_made_from_the_tests_recordings(tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    subprocess.run([sys.executable, SCRIPT, picture], cwd=tmp_path, check=True, timeout=900)
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1180, 2016)
    assert len(data) > 100_000  # an empty page takes a few KB
