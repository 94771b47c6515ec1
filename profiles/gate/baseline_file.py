"""A baseline: the metrics of a good run, in a file that is small enough for git."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..ground import typed
from ..ground.errors import RingscopeError
from ..ground.files import text_of
from ..readers import opening
from ..runs import written
from . import of_logs
from .metrics import RECORDED

BASELINE_SCHEMA = "ringscope.baseline/1"
# Tolerances: by noise alone a run may be worse by 5 % of a value, and a share by half a percentage point more.
RELATIVE, ABSOLUTE_SHARE = 0.05, 0.005
_WRITE = "write one with --write-baseline"
_SHOWN = 60  # number of characters of a metric's name that errors show


@dataclass(frozen=True, slots=True)
class Baseline:
    """The metrics of a run, its GPUs, its work and the tolerances."""

    metrics: Mapping[str, float]
    gpus: Sequence[str]  # sorted names; empty for a run without a GPU
    cell: str | None = None
    relative: float = RELATIVE
    absolute_share: float = ABSOLUTE_SHARE
    schema: str = BASELINE_SCHEMA
    # Kernels that identify the work of recordings without a cell; missing in baselines of older versions.
    kernels_per_step: int | None = None
    kernels: Mapping[str, float] = field(default_factory=dict)
    ranks: int | None = None  # ranks of the largest communicator in logs of NCCL's Inspector; None without such logs

    def __post_init__(self) -> None:
        """Raises ValueError for impossible numbers, with which a check would always hold or always be broken."""
        if self.relative < 0 or self.absolute_share < 0:
            raise ValueError("a tolerance is below 0")
        if self.relative > 1 or self.absolute_share > 1:
            raise ValueError("a tolerance is above 1; write 5 % as 0.05")
        for name, value in self.metrics.items():
            _check_range(name, value, 1.0 if name.partition("[")[0] in (*RECORDED, of_logs.WAITING) else math.inf)
        for name, value in self.kernels.items():
            _check_range(f"the share of {name}", value, 1.0)
        for name, count in (("kernels_per_step", self.kernels_per_step), ("ranks", self.ranks)):
            _check_range(name, count or 0, math.inf)


def _check_range(name: str, value: float, most: float) -> None:
    if not 0 <= value <= most:
        raise ValueError(f"{name[:_SHOWN]} is {value:g}, {'below 0' if value < 0 else f'above {most:g}'}")


def to_json(baseline: Baseline) -> dict[str, Any]:
    return asdict(baseline)


def load(path: Path) -> Baseline:
    """Read a baseline. Raises RingscopeError if the file holds none."""
    try:
        return from_json(typed.loads(text_of(path)))
    except RingscopeError as error:
        why = str(error)
    except (OSError, ValueError) as error:
        why = f"no baseline can be read from this file ({getattr(error, 'strerror', error)}); {_WRITE}"
    raise RingscopeError(f"{path}: {_other(path) or why}")


def _other(path: Path) -> str:
    """Words for a file that ringscope wrote but that is no baseline; "" for any other file."""
    try:
        head = opening.head(path)
    except RingscopeError:
        return ""
    found = written.told(path, head)
    return f"{found[0]}, not a baseline; {_WRITE}" if found and found != written.BASELINE else ""


def from_json(data: Any) -> Baseline:
    """Make a baseline from decoded JSON. Raises RingscopeError for anything else."""
    if not isinstance(data, dict) or data.get("schema") != BASELINE_SCHEMA:
        raise RingscopeError(f"not a baseline of schema {BASELINE_SCHEMA}; {_WRITE}")
    if unknown := sorted(set(data) - {one.name for one in fields(Baseline)}):
        raise RingscopeError(f"no baseline has {unknown[0][:_SHOWN]!r}; {_WRITE}")  # a limit with a typing error
    try:
        return typed.made(Baseline, data, texts=False)
    except ValueError as error:
        raise RingscopeError(f"an incomplete baseline ({error}); write it again with --write-baseline") from None
