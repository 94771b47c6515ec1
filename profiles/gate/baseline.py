"""A baseline: the metrics of a run that was good, as a file small enough for git."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..ground import typed
from ..ground.errors import RingscopeError
from ..ground.files import text_of
from ..model.measures import CLASSES, OWNERS
from ..readers import opening
from ..runs import written
from . import of_logs

BASELINE_SCHEMA = "ringscope.baseline/1"
# Tolerances: single recordings may be worse by 5 % of a value, or half a percentage point of a share, by noise.
RELATIVE, ABSOLUTE_SHARE = 0.05, 0.005
_WRITE = "write one with --write-baseline"
_SHOWN = 60  # characters of a metric's name
# Metrics that are shares of the window, with the owner in the ledger whose share each is.
SHARES = {
    "feed_gap_share": "idle_feed",
    "compute_share": "compute",
    **{f"exposed_{name}_share": name for name in CLASSES if name != "compute"},
    **{f"{owner}_share": owner for owner in OWNERS if owner.startswith("idle_") and owner != "idle_feed"},
}
RECORDED = (*SHARES, "input_stall_share")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The metrics of a run, its GPUs, its work and the tolerances."""

    metrics: Mapping[str, float]
    gpus: Sequence[str]  # names, sorted; empty without a GPU
    cell: str | None = None
    relative: float = RELATIVE
    absolute_share: float = ABSOLUTE_SHARE
    schema: str = BASELINE_SCHEMA
    # The work, for runs without a cell; unknown in older baselines.
    kernels_per_step: int | None = None
    kernels: Mapping[str, float] = field(default_factory=dict)
    ranks: int | None = None  # of the collectives that NCCL's Inspector logged

    def __post_init__(self) -> None:
        """Raises ValueError for impossible numbers, by which a check would always hold or always break."""
        if self.relative < 0 or self.absolute_share < 0:
            raise ValueError("a tolerance is below 0")
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
    """Read the baseline in a file. Raises RingscopeError if it holds none."""
    try:
        return from_json(typed.loads(text_of(path)))
    except RingscopeError as error:
        why = str(error)
    except OSError as error:
        why = f"no baseline there ({error.strerror}); {_WRITE}"
    except ValueError as error:
        why = f"no baseline there ({error}); {_WRITE}"
    raise RingscopeError(f"{path}: {_other(path) or why}")


def _other(path: Path) -> str:
    """Words about another file of ringscope, given instead of a baseline; "" for any other file."""
    try:
        head = opening.head(path)
    except RingscopeError:
        return ""
    found = written.told(path, head)
    return f"{found[0]}, and no baseline; {_WRITE}" if found and found != written.BASELINE else ""


def from_json(data: Any) -> Baseline:
    """Make a baseline from decoded JSON. Raises RingscopeError for anything else."""
    if not isinstance(data, dict) or data.get("schema") != BASELINE_SCHEMA:
        raise RingscopeError(f"not a baseline of schema {BASELINE_SCHEMA}; {_WRITE}")
    try:
        return typed.made(Baseline, data, texts=False)
    except ValueError as error:
        raise RingscopeError(f"not a whole baseline ({error}); write it again with --write-baseline") from None
