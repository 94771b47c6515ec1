"""`ringscope timeline` on one file after the other, each in a fork with limits: python -m tests.readers.limited

Takes a path as a JSON string per line, and answers with a line: exit code, what was said, CPU seconds, peak memory.
The imports are paid once.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

# What stops what would never end, or hurt the machine. The slowest takes 4 s of CPU; beside others, or on an older
# machine, the same takes several times as long. Of memory the test asks for less.
STOP_CPU_S, MEMORY_MB = 100, 1000
_STOP_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Said:
    """How `ringscope timeline` ended."""

    code: int
    text: str  # on stderr, without progress
    cpu_s: float
    peak_mb: float


class Limited:
    """The process that answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def timeline(self, path: Path) -> Said:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(os.fsdecode(path)) + "\n")
        self._process.stdin.flush()
        return Said(**json.loads(self._process.stdout.readline()))


@contextmanager
def started() -> Iterator[Limited]:
    command = [sys.executable, "-m", "tests.readers.limited"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Limited(process)
        assert process.stdin
        process.stdin.close()


def main() -> None:
    import pandas  # noqa: F401
    import pyarrow.compute  # noqa: F401

    import profiles

    for module in pkgutil.walk_packages(profiles.__path__, "profiles."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    for line in sys.stdin:
        print(json.dumps(asdict(_forked(json.loads(line)))), flush=True)


def _forked(path: str) -> Said:
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if not pid:
            _child(path, said.fileno())
        _, status, used = os.wait4(pid, 0)
        said.seek(0)
        text, _, peak = said.read().decode(errors="replace").rpartition("\n## ")
        code = os.waitstatus_to_exitcode(status)
        return Said(code, text if peak else peak, used.ru_utime + used.ru_stime, float(peak or 0) * 1024 / 1e6)


def _child(path: str, said: int) -> None:
    """Never returns."""
    code = 99
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (STOP_CPU_S, STOP_CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (_STOP_BYTES, _STOP_BYTES))
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        from profiles import cli

        sys.argv = ["ringscope", "timeline", path, "--json", "-"]
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 98
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    # Of this process alone: a fork begins with what its parent holds, not with the parent's own peak.
    high = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    os.write(said, f"\n## {high.split()[1]}".encode())
    os._exit(code)


if __name__ == "__main__":
    main()
