"""`python drive.py MODE BENCH-OPTIONS...`: `ringscope bench` whose ranks are stand-ins (stand_in.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness import launch
from harness.launch import profilers
from harness.machine import describe as machine
from harness.verbs import bench


def main() -> None:
    mode, options = sys.argv[1], sys.argv[2:]
    stand_in = Path(__file__).with_name("stand_in.py")

    def worker(cell_path: Path, out_dir: Path) -> list[str]:
        return [sys.executable, str(stand_in), mode, "--cell", str(cell_path), "--out", str(out_dir)]

    launch.worker = worker
    describe = machine.describe
    machine.describe = lambda: describe(libraries=False)
    if nsys := os.environ.get("RINGSCOPE_TEST_NSYS"):
        profilers.choose = lambda wanted=None: profilers.Profiler("nsys", nsys)
    bench.command(options)


if __name__ == "__main__":
    main()
