"""Make docs/images/page.png: the upper part of the page of two recordings in tests/data, as a browser shows it.

    .venv/bin/python scripts/page_picture.py [PICTURE]

Needs Debian's chromium (or google-chrome).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDING = "resnet50-2gpu-prefetch"
WIDTH, HEIGHT = 1180, 2016
# A fixed size and no animation, scroll bar or look at the network: the same page gives the same picture.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1")
QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
DRAWN = "--virtual-time-budget=20000"  # ms of the page's clock, for unpacking and drawing the timeline


def main() -> None:
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "images" / "page.png").resolve()
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if browser is None:
        sys.exit("page_picture: no browser here; apt install chromium")
    recordings = sorted((ROOT / "tests" / "data").glob(f"{RECORDING}.rank*.sqlite.xz"))
    with tempfile.TemporaryDirectory(prefix="ringscope-picture-") as name:
        page = Path(name) / "page.html"
        timeline = [sys.executable, "-m", "harness", "timeline", *map(str, recordings), "--html", str(page)]
        run(timeline)
        shot = [f"--screenshot={picture}", f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={name}/browser"]
        run([browser, *FLAGS, *QUIET, DRAWN, *shot, page.as_uri()])


def run(command: list[str]) -> None:
    """Run quietly; show the output if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"page_picture: {' '.join(command)} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    main()
