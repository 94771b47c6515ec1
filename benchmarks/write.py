"""A generated run in the formats of the profilers, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .training import Shape
from .write_sqlite import write_nsys, write_nvprof
from .write_text import write_kineto, write_nvprof_csv

WRITERS: Mapping[str, Callable[[Shape, Path, range | None], None]] = {
    "nsys": write_nsys,
    "nvprof": write_nvprof,
    "nvprof-csv": write_nvprof_csv,
    "kineto": write_kineto,
}
