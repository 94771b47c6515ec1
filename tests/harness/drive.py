"""`python drive.py MODE BENCH-OPTIONS...`: `ringscope bench` whose ranks are stand-ins (stand_in.py).

In mode `trained` they train, as forks of a process that has imported TensorFlow: RINGSCOPE_TEST_FORK, as JSON, has what
is put before their words (prepared.py).
"""

from __future__ import annotations

import json
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

    describe = machine.describe
    if mode == "trained":
        fork, own = json.loads(os.environ["RINGSCOPE_TEST_FORK"]), launch.worker
        launch.worker = lambda cell_path, out_dir: [*fork, *own(cell_path, out_dir)]
        machine.PROBE = (*fork, *machine.PROBE)
    else:
        launch.worker = worker
        machine.describe = lambda: describe(libraries=False)
    if nsys := os.environ.get("RINGSCOPE_TEST_NSYS"):
        profilers.choose = lambda wanted=None: profilers.Profiler("nsys", nsys)
    bench.command(options)


if __name__ == "__main__":
    main()
