"""`ringscope record` again and again, in one process and one directory: python -m tests.harness.jobs.record_again TIMES

Writes held.json: of each time the resident memory in KiB, and how many descriptors, threads and processes there are
after it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil

from harness.verbs import record
from tests.profiles.long_use import held

# REPORT: the file that the program in nsys's place writes (test_record_report.py)
TRAIN = 'until [ -e "$REPORT" ]; do sleep 0.05; done'
WORDS = ["--profiler", "nsys", "--delay", "0", "--duration", "1", "--launcher", "single", "--", "sh", "-c", TRAIN]


def main() -> None:
    found = []
    for _ in range(int(sys.argv[1])):
        assert not record.command.main(WORDS, standalone_mode=False)
        found.append((*held(), len(psutil.Process(os.getpid()).children(recursive=True))))
    Path("held.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
