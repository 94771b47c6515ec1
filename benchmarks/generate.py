"""Write a training run of any size as a recording. Its answers are known by construction (benchmarks/training.py).

    python -m benchmarks.generate run.sqlite --format nsys --steps 500 --kernels 1000 --gpus 4
    python -m benchmarks.generate folder --each --gpus 512 --processes 512

--kernels is per step and GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .training import Shape
from .write import WRITERS


def main() -> None:
    """Write one recording, or one of each process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--format", choices=list(WRITERS), default="nsys")
    for name in ("steps", "kernels", "gpus", "processes"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape(), name))
    parser.add_argument("--process", type=int, help="only the GPUs of this one (nvprof and Kineto: one file a process)")
    parser.add_argument("--each", action="store_true", help="a file of each process, in the folder PATH")
    given = parser.parse_args()
    usual = Shape()
    skew_ns = min(usual.skew_ns, (usual.hidden_ns - 1) // given.gpus)
    shape = Shape(given.steps, given.kernels, given.gpus, given.processes, skew_ns=skew_ns)
    per_process = shape.gpus // shape.processes

    def write(path: Path, process: int) -> None:
        WRITERS[given.format](shape, path, range(process * per_process, (process + 1) * per_process))

    if given.each:
        given.path.mkdir(parents=True, exist_ok=True)
        for process in range(shape.processes):
            write(given.path / f"rank{process}.sqlite", process)
    elif given.process is not None:
        write(given.path, given.process)
    else:
        WRITERS[given.format](shape, given.path, None)


if __name__ == "__main__":
    main()
