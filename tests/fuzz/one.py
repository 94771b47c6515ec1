"""Fuzz one reader with atheris: python -m tests.fuzz.one READER [libFuzzer's options] FOLDER...

The folders hold inputs to begin with; what is new goes to the first of them.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["profiles"]):
    from . import target

    for name in target.TARGETS:
        importlib.import_module(f"profiles.readers.{name}")


def main() -> None:
    """Runs until libFuzzer's -max_total_time, or the first input that is neither read nor refused."""
    reader = sys.argv.pop(1)
    folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    path = Path(folder.name, "recording")

    def once(data: bytes) -> None:
        path.write_bytes(data)
        target.check(reader, path)

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
