"""Records of a run, which all read: a rank's steps, a launch's record, a sweep: JSON (docs/reference/files.md)."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ..ground import typed
from ..ground.errors import RingscopeError
from ..ground.files import text_of, write_whole
from .cell import Cell as Cell

RUN_SCHEMA = "ringscope.run/1"
RANK_SCHEMA = "ringscope.rank/1"
SWEEP_SCHEMA = "ringscope.sweep/1"
# The files of a run directory that are no recordings.
_OF_A_RUN = re.compile(
    r"(?:sweep|cell|record|measures|applied|fits)\.json|rank\d+\.(?:jsonl|log|progress|(?:end|error|places)\.json)"
    r"|launcher\.log|(?:results|summary|autotune)\.csv|job\.(?:sbatch|pbs|lsf|json|log)|\.lock"
)
_ADDS_UP = 0.01
MOST_LAUNCHES = 1_000_000  # of a cell
_LONGEST_HEADER = 1 << 20  # letters of the first line of a rank's record
# Fields that are read of a machine, with their types; its other fields are only shown.
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
class RankRecord:
    """`rank<k>.jsonl`: a header line, one line a timed step, a closing line.

    Times are that host's UTC clock in ns (time.time_ns at the window's edges; steps by the monotonic clock laid on it).
    `step_ns` and `input_wait_ns`: one entry a timed step, measured on the host.
    """

    rank: int
    size: int
    local_rank: int
    host: str
    device: str | None  # GPU uuid, None on CPU
    window_start_ns: int
    window_end_ns: int
    samples: int  # of this rank, in the window
    step_ns: list[int]
    input_wait_ns: list[int]
    clock_offset_ns: int = 0  # this host's clock minus rank 0's, measured at the barrier
    extra: dict[str, Any] = field(default_factory=dict)  # final loss, weights digest, versions


@dataclass(slots=True)
class RunRecord:
    """`record.json`: one launch of one cell, whatever became of it."""

    cell: Cell
    launch: int
    status: str
    reason: str
    started_utc_ns: int
    finished_utc_ns: int
    command: list[str]
    launcher: str
    machine: dict[str, Any]
    profiled: str | None = None  # nsys, nvprof, tensorflow: timings of profiled runs are kept apart
    schema: str = RUN_SCHEMA

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cell": self.cell.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunRecord:
        known = _known(cls, data)
        typed.check_fields(cls, known)
        _check_machine(known["machine"])
        return cls(**(known | {"cell": Cell.from_json(data["cell"])}))


@dataclass(slots=True)
class SweepRecord:
    """`sweep.json`: what a run directory is to hold. Cell i's launch k lies in `<cell id>/<k>/`."""

    cells: list[Cell]
    launches: int
    launcher: str
    hosts: list[str] = field(default_factory=list)  # name:slots; empty: this machine alone
    created_utc_ns: int = 0
    machine: dict[str, Any] = field(default_factory=dict)  # that the first launches ran on; empty before them
    options: dict[str, Any] = field(default_factory=dict)  # limits and the launcher's own arguments
    schema: str = SWEEP_SCHEMA

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cells": [cell.to_json() for cell in self.cells]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SweepRecord:
        known = _known(cls, data)
        typed.check_fields(cls, known)
        if not 1 <= known["launches"] <= MOST_LAUNCHES:
            raise ValueError(f"launches is {known['launches']!r}, not a count")
        if not data["cells"]:
            raise ValueError("no cell in it")
        _check_machine(known.get("machine", {}))
        return cls(**(known | {"cells": [Cell.from_json(cell) for cell in data["cells"]]}))


@dataclass(slots=True)
class Run:
    """One launch as it was read back: its record, and its ranks' where the launch is ok."""

    record: RunRecord
    ranks: list[RankRecord]
    directory: Path


def read_sweep(directory: Path) -> SweepRecord:
    """The sweep a run directory holds. Raises RingscopeError where there is none."""
    remedy = "name a directory that bench wrote"
    return _read_json(directory / "sweep.json", SWEEP_SCHEMA, remedy, SweepRecord.from_json)


class Damaged(RingscopeError):
    """A file of a run that is missing, empty, cut, or of another version."""


def read_runs(directory: Path) -> list[Run]:
    """Every launch that a run directory holds, in the order of their starts, launches with a damaged file included."""
    found = (path.parent for path in directory.glob("*/*/record.json"))
    runs = []
    for path in (path for path in found if path.name.isdigit()):  # not launches that were moved aside
        with contextlib.suppress(Damaged):  # a folder of no cell of the sweep
            runs.append(read_run(path))
    return sorted(runs, key=lambda run: (run.record.started_utc_ns, run.record.cell.id, run.record.launch))


def read_run(directory: Path) -> Run:
    """One launch of one cell, of its directory: `damaged` where a file of it is not whole.

    Raises Damaged where not even the cell is known.
    """
    try:
        record = _read_json(directory / "record.json", RUN_SCHEMA, "run that cell again", RunRecord.from_json)
    except Damaged as error:
        return Run(_damaged(directory, error), [], directory)
    if record.status != "ok":
        return Run(record, [], directory)
    try:
        each = (read_rank(directory / f"rank{rank}.jsonl") for rank in range(record.cell.processes))
        ranks = _of_one_launch(list(each), directory)
        return Run(record, ranks, directory)
    except Damaged as error:
        return Run(replace(record, status="damaged", reason=str(error)), [], directory)


def _of_one_launch(ranks: list[RankRecord], directory: Path) -> list[RankRecord]:
    """Raises Damaged where they are of launches of several sizes."""
    sizes = sorted({rank.size for rank in ranks})
    if len(sizes) > 1:
        raise Damaged(f"{directory}: ranks of launches with {sizes[0]} and {sizes[1]} ranks; run that cell again")
    return ranks


def _damaged(directory: Path, error: Damaged) -> RunRecord:
    """The known facts of a launch without a record: the sweep's cell that its folder is named by."""
    sweep = read_sweep(directory.parents[1])
    cell = next((one for one in sweep.cells if one.id == directory.parent.name), None)
    if cell is None:
        raise error
    return RunRecord(cell, int(directory.name), "damaged", str(error), 0, 0, [], sweep.launcher, {})


def beside(path: Path) -> RunRecord | None:
    """The record of the launch that a file belongs to: `record.json` in its directory; None without one."""
    try:
        return RunRecord.from_json(typed.loads(text_of(path.with_name("record.json"))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def host_beside(path: Path) -> str | None:
    """The host of the rank that a file belongs to, as `rank<k>.jsonl` beside `rank<k>.sqlite` tells it; or None."""
    try:
        rank = path.with_name(path.name.split(".")[0] + ".jsonl")
        if not rank.is_file():
            return None
        with rank.open(encoding="utf-8") as lines:
            header = typed.loads(lines.readline(_LONGEST_HEADER))
        host = header["host"] if header["schema"] == RANK_SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return host if isinstance(host, str) else None


def _read_json(path: Path, schema: str, remedy: str, make: Callable[[dict[str, Any]], T]) -> T:
    try:
        data: dict[str, Any] = typed.loads(text_of(path))
        if data.get("schema") != schema:
            raise Damaged(f"{path}: schema {data.get('schema')!r}, this version reads {schema!r}; {remedy}")
        return make(data)
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}; {remedy}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path}: not JSON of ringscope's ({error}); {remedy}") from error


def _check_machine(machine: dict[str, Any]) -> None:
    """Raises ValueError where what is read of it is of another type, or fewer than none."""
    _check_part(_OF_A_MACHINE, machine, "machine's")
    _check_part(_OF_A_CPU, machine.get("cpu") or {}, "cpu's")
    for gpu in machine.get("gpus") or ():
        _check_part(_OF_A_GPU, gpu, "gpu's")


def _check_part(hints: dict[str, Any], part: dict[str, Any], whose: str) -> None:
    """None stands for what is not known."""
    for name, hint in hints.items():
        value = part.get(name)
        if value is not None:
            typed.check(hint, value, f"{whose} {name}")
        if hint is int and value is not None and value < 0:
            raise ValueError(f"{whose} {name} is {value}, below 0")


def _check(record: RankRecord, path: Path) -> None:
    """Raises ValueError where it is not of the rank that its file is named by, or holds what no rank measures."""
    if path.name != f"rank{record.rank}.jsonl":
        raise ValueError(f"the record is of rank {record.rank}")
    if record.window_start_ns < 0:
        raise ValueError("its window begins before 1970")
    if record.window_end_ns <= record.window_start_ns:
        raise ValueError("its window ends before it begins")
    if any(ns < 0 for ns in (*record.step_ns, *record.input_wait_ns)):
        raise ValueError("a step's time is below 0")
    if not record.size > 0 or record.samples < 0:
        raise ValueError(f"{record.samples} samples of {record.size} ranks")
    window_ns = record.window_end_ns - record.window_start_ns
    # A window is its steps, one after the other: another sum tells of a changed file, or of a clock that was set.
    if abs(sum(record.step_ns) - window_ns) > _ADDS_UP * window_ns:
        raise ValueError("the times of the steps do not add up to the time measured; the file was changed")


def of_a_run(path: Path) -> bool:
    """True if a run directory has a file of this name beside its recordings."""
    return bool(_OF_A_RUN.fullmatch(path.name))


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The entries that this version knows: a file of another version may have more."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def write_rank(path: Path, record: RankRecord) -> None:
    """Write `rank<k>.jsonl` whole: the header, one line a timed step, the closing line that tells it is complete."""
    fields = asdict(record)
    step_ns, input_wait_ns = fields.pop("step_ns"), fields.pop("input_wait_ns")
    lines: list[dict[str, Any]] = [{"schema": RANK_SCHEMA, **fields}]
    lines += [
        {"step": number, "step_ns": step, "input_wait_ns": wait}
        for number, (step, wait) in enumerate(zip(step_ns, input_wait_ns, strict=True))
    ]
    lines.append({"end": True, "steps": len(step_ns)})
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_rank(path: Path) -> RankRecord:
    """The record in `rank<k>.jsonl`. Raises Damaged where it is not whole, or of another version."""
    try:
        text = text_of(path)
        typed.refuse_many(text.replace("\n", ","))
        header, *steps, end = [typed.loads(line) for line in text.splitlines()]
        schema = header.pop("schema")
        if schema != RANK_SCHEMA:
            raise Damaged(f"{path}: schema {schema!r}, this version reads {RANK_SCHEMA!r}; run that cell again")
        if end != {"end": True, "steps": len(steps)}:
            raise ValueError("its closing line is missing")
        known = _known(RankRecord, header)
        known["step_ns"] = [line["step_ns"] for line in steps]
        known["input_wait_ns"] = [line["input_wait_ns"] for line in steps]
        typed.check_fields(RankRecord, known)
        record = RankRecord(**known)
        _check(record, path)
        return record
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}; run that cell again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path}: not a whole rank record ({error}); run that cell again") from error
