"""Read and write the JSON records of a launch and of a sweep of launches (docs/reference/files.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ..ground import typed
from ..ground.files import text_of
from .cell import Cell as Cell
from .rank_records import Damaged, RankRecord, read_rank

RUN_SCHEMA = "ringscope.run/1"
SWEEP_SCHEMA = "ringscope.sweep/1"
MOST_LAUNCHES = 1_000_000  # largest number of launches per cell

# Fields of a machine's description that the code uses, with their types; other fields are only shown.
_OF_A_MACHINE: dict[str, Any] = {
    "host": str,
    "os": str,
    "kernel": str,
    "driver": str,
    "memory_bytes": int,
    "gpus": list[dict[str, Any]],
    "packages": dict[str, Any],
    "cpu": dict[str, Any],
    "horovod": dict[str, Any],
}
_OF_A_CPU: dict[str, Any] = {"model": str, "logical": int, "usable": int}
_OF_A_GPU: dict[str, Any] = {"name": str, "memory_bytes": int}
T = TypeVar("T")
COMMAND = "command"  # the folder in which `ringscope record` keeps what it recorded of a command
STATUSES = (
    "ok",
    "failed",
    "hung",
    "oom",
    "timeout",
    "unreachable",
    "unsupported",
    "indivisible",
    "interrupted",
    "damaged",
)


@dataclass(slots=True)
class RunRecord:
    """The content of `record.json`: one launch of one cell, successful or not."""

    cell: Cell
    launch: int
    status: str
    reason: str
    started_utc_ns: int
    finished_utc_ns: int
    command: list[str]
    launcher: str
    machine: dict[str, Any]
    profiled: str | None = None  # nsys, nvprof or tensorflow; timings of profiled launches are not compared
    schema: str = RUN_SCHEMA

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cell": self.cell.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunRecord:
        known = typed.known(cls, data)
        typed.check_fields(cls, known)
        _check_machine(known["machine"])
        return cls(**(known | {"cell": Cell.from_json(data["cell"])}))


@dataclass(slots=True)
class SweepRecord:
    """The content of `sweep.json`: the plan of a run directory, in which `<cell id>/<k>/` holds launch k of a cell."""

    cells: list[Cell]
    launches: int
    launcher: str
    hosts: list[str] = field(default_factory=list)  # each as name:slots; empty if only this machine is used
    created_utc_ns: int = 0
    machine: dict[str, Any] = field(default_factory=dict)  # the machine of the first launches; empty before
    options: dict[str, Any] = field(default_factory=dict)  # limits, and further arguments of the launcher
    schema: str = SWEEP_SCHEMA

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cells": [cell.to_json() for cell in self.cells]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SweepRecord:
        known = typed.known(cls, data)
        typed.check_fields(cls, known)
        if not 1 <= known["launches"] <= MOST_LAUNCHES:
            raise ValueError(f"launches is {known['launches']!r}, not a number from 1 to {MOST_LAUNCHES:,}")
        if not data["cells"]:
            raise ValueError("it has no cell")
        _check_machine(known.get("machine", {}))
        return cls(**(known | {"cells": [Cell.from_json(cell) for cell in data["cells"]]}))


@dataclass(slots=True)
class Run:
    """One launch, read from its directory: its record and, if its status is ok, the records of its ranks."""

    record: RunRecord
    ranks: list[RankRecord]
    directory: Path


def read_sweep(directory: Path) -> SweepRecord:
    """Read `sweep.json` of a run directory. Raises RingscopeError if there is none."""
    remedy = "name a directory that `ringscope bench` wrote"
    if directory.is_file():
        raise Damaged(f"{directory}: a file, not a run directory; {remedy}")
    if directory.parent.name == COMMAND or (directory / COMMAND).is_dir():
        raise Damaged(f"{directory}: recordings of a command, not a sweep; show them: ringscope timeline {directory}")
    return _read_json(directory / "sweep.json", SWEEP_SCHEMA, remedy, SweepRecord.from_json)


def read_runs(directory: Path) -> list[Run]:
    """Read all launches of a run directory in order of start, with those that have a damaged file."""
    found = (path.parent for path in directory.glob("*/*/record.json"))
    runs = []
    for path in (path for path in found if path.name.isdigit()):  # other names: launches that were moved aside
        with contextlib.suppress(Damaged):  # the folder's name is no cell of the sweep
            runs.append(read_run(path))
    return sorted(runs, key=lambda run: (run.record.started_utc_ns, run.record.cell.id, run.record.launch))


def read_run(directory: Path) -> Run:
    """Read one launch from its directory. Its status is `damaged` if a file is incomplete. Raises Damaged if not even
    the launch's cell can be told."""
    try:
        record = _read_json(directory / "record.json", RUN_SCHEMA, "run that cell again", RunRecord.from_json)
    except Damaged as error:
        return Run(_damaged(directory, error), [], directory)
    if record.status != "ok":
        return Run(record, [], directory)
    try:
        each = (read_rank(directory / f"rank{rank}.jsonl") for rank in range(record.cell.processes))
        ranks = list(each)
        _check_sizes(ranks, directory)
        return Run(record, ranks, directory)
    except Damaged as error:
        return Run(replace(record, status="damaged", reason=str(error)), [], directory)


def _check_sizes(ranks: list[RankRecord], directory: Path) -> None:
    """Raises Damaged if the ranks come from launches with different numbers of ranks."""
    sizes = sorted({rank.size for rank in ranks})
    if len(sizes) > 1:
        raise Damaged(
            f"{directory} holds records of launches with {sizes[0]} and with {sizes[1]} ranks; run that cell again"
        )


def _damaged(directory: Path, error: Damaged) -> RunRecord:
    """Make the record of a launch whose own record is not valid: the folder's name tells the cell. Raises `error` if
    not."""
    sweep = read_sweep(directory.parents[1])
    cell = next((one for one in sweep.cells if one.id == directory.parent.name), None)
    if cell is None:
        raise error
    return RunRecord(cell, int(directory.name), "damaged", str(error), 0, 0, [], sweep.launcher, {})


def beside(path: Path) -> RunRecord | None:
    """The record of the launch that a file belongs to, which is `record.json` in the file's directory; None without
    one."""
    try:
        return RunRecord.from_json(typed.loads(text_of(path.with_name("record.json"))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_json(path: Path, schema: str, remedy: str, make: Callable[[dict[str, Any]], T]) -> T:
    try:
        data: Any = typed.loads(text_of(path))
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        if data.get("schema") != schema:
            raise Damaged(f"{path}: schema {data.get('schema')!r}, this version reads {schema!r}; {remedy}")
        return make(data)
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}; {remedy}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path}: not a JSON record of ringscope ({error}); {remedy}") from error


def _check_machine(machine: dict[str, Any]) -> None:
    """Raises ValueError if a field that the code uses has a wrong type or is negative."""
    _check_part(_OF_A_MACHINE, machine, "machine's")
    _check_part(_OF_A_CPU, machine.get("cpu") or {}, "cpu's")
    for gpu in machine.get("gpus") or ():
        _check_part(_OF_A_GPU, gpu, "gpu's")


def _check_part(hints: dict[str, Any], part: dict[str, Any], whose: str) -> None:
    """Check the types of the fields in `hints`; None, for a value that is not known, passes. Raises ValueError."""
    for name, hint in hints.items():
        value = part.get(name)
        if value is not None:
            typed.check(hint, value, f"{whose} {name}")
        if hint is int and value is not None and value < 0:
            raise ValueError(f"{whose} {name} is {value}, below 0")
