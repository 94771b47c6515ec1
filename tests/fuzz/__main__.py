"""Fuzz every reader in turn, then every verb: python -m tests.fuzz [--seconds 600] [READER...]

Begins with the committed corpus; keeps what it finds under build/fuzz. Exit code 1 and the input's path where a reader
neither reads nor refuses something, or takes more than 20 s for it.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from .files import KINDS
from .target import CORPUS, TARGETS


def main() -> int:
    """The number of readers that failed, at most 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("readers", nargs="*", choices=[*TARGETS, []], help="default: all")
    parser.add_argument("--seconds", type=int, default=600, help="for each reader (default: 600)")
    given = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is missing: pip install -e '.[fuzz]' (`python -m tests.fuzz.files` does without it)")
    failed = 0
    for reader in given.readers or TARGETS:
        found = Path("build", "fuzz", reader)
        found.mkdir(parents=True, exist_ok=True)
        longest = max(8192, *(path.stat().st_size for path in (CORPUS / reader).iterdir()))
        options = [f"-max_total_time={given.seconds}", "-timeout=20", f"-max_len={longest}", "-rss_limit_mb=4096"]
        options.append(f"-dict={CORPUS.parent / 'words.dict'}")
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.one",
            reader,
            *options,
            f"-artifact_prefix={found.parent}/{reader}-",
        ]
        print(f"{reader}: {given.seconds} s", flush=True)
        if subprocess.run([*command, str(found), str(CORPUS / reader)]).returncode:
            print(f"{reader}: FAILED; the input is {found.parent}/{reader}-*; add it to {CORPUS / reader}", flush=True)
            failed = 1
    for what in () if given.readers else KINDS:
        print(f"{what} through every verb: {given.seconds} s", flush=True)
        command = [sys.executable, "-m", "tests.fuzz.files", what, "--seconds", str(given.seconds)]
        failed |= subprocess.run(command).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
