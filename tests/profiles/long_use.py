"""`ringscope.measure` again and again: python -m tests.profiles.long_use TIMES FILE...

Prints a JSON list: of each time the resident memory in KiB, and how many descriptors and threads are open after it.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import cycle, islice
from pathlib import Path

import ringscope


def held() -> tuple[int, int, int]:
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def main() -> None:
    found = []
    for path in islice(cycle(sys.argv[2:]), int(sys.argv[1])):
        ringscope.measure(path)
        found.append(held())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
