"""Write a training run of any size as a recording. Its answers are known by construction (benchmarks/training.py).

    python -m benchmarks.generate run.sqlite --format nsys --steps 500 --kernels 1000 --gpus 4

--kernels is per step and GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .training import Shape
from .write import WRITERS


def main() -> None:
    """Write one recording."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--format", choices=list(WRITERS), default="nsys")
    for name in ("steps", "kernels", "gpus", "processes"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape(), name))
    parser.add_argument("--process", type=int, help="only the GPUs of this one (nvprof and Kineto: one file a process)")
    given = parser.parse_args()
    shape = Shape(given.steps, given.kernels, given.gpus, given.processes)
    per_process = shape.gpus // shape.processes
    gpus = None if given.process is None else range(given.process * per_process, (given.process + 1) * per_process)
    WRITERS[given.format](shape, given.path, gpus)


if __name__ == "__main__":
    main()
