"""Load the input of `gate` and `compare`: a run directory, a file of measures, or recordings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..ground.errors import NcclLog, RingscopeError
from ..ground.files import open_regular
from ..model.logged import Logged
from ..model.measures import SCHEMA, Measures
from ..readers import opening
from ..runs.records import RunRecord, beside
from ..scaling.measure import Scaling

if TYPE_CHECKING:
    from .analysis import Progress

_HEAD_BYTES: Final = 4096
_MEASURES: Final = SCHEMA.rpartition("/")[0].encode()  # of any version


@dataclass(frozen=True, slots=True)
class Subject:
    """A run to judge or compare. `measures` is None without recordings, `scaling` is None without a sweep of
    launches."""

    label: str
    measures: Measures | None
    scaling: Scaling | None
    machine: dict[str, Any] = field(default_factory=dict)
    record: RunRecord | None = None  # the launch that was recorded
    unmeasured: str = ""  # why `measures` is None although a file was given
    logged: Logged | None = None  # the collectives, if the input is logs of NCCL


def load(paths: Sequence[Path], *, strict: bool = False, progress: Progress | None = None) -> Subject:
    """Load one run from its paths. `progress`: as in `analysis.analyse`. Raises RingscopeError if they hold nothing to
    judge."""
    label = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if len(paths) == 1 and _is_run_directory(paths[0]):
        return _of_a_sweep(paths[0])
    if len(paths) == 1 and paths[0].is_file() and (found := _written(paths[0])):
        record = beside(paths[0])
        return Subject(label, found, None, record.machine if record else {}, record)
    if len(paths) == 1 and (paths[0] / "measures.json").is_file():
        return load([paths[0] / "measures.json"], strict=strict)
    from . import logged
    from .analysis import analyse

    try:
        measures = analyse(paths, strict=strict, progress=progress).measures
    except NcclLog as error:
        return Subject(label, None, None, unmeasured=str(error), logged=logged.measure(paths, strict=strict))
    record = beside(Path(measures.recordings[0].path))
    return Subject(label, measures, None, record.machine if record else {}, record)


def _is_run_directory(path: Path) -> bool:
    """True if the directory has a sweep.json. Raises RingscopeError if it has launches but no sweep.json, since
    different trainings cannot be measured as one run."""
    sweep = path / "sweep.json"
    if not sweep.is_file() and (launch := next(path.glob("*/*/record.json"), None)):
        what = "is no file" if sweep.exists() or sweep.is_symlink() else "is gone"
        raise RingscopeError(
            f"{sweep} {what}, and only this file lists the trainings of the run; restore it, or give the "
            f"folder of one launch, such as {launch.parent}"
        )
    return sweep.is_file()


def _of_a_sweep(path: Path) -> Subject:
    """Load a run directory: the scaling over its launches, and the measures of the last launch that has measures."""
    from ..runs import records
    from ..scaling import measure as scaling

    runs = records.read_runs(path)
    scaled = scaling.measure(records.read_sweep(path), runs)
    machine = runs[0].record.machine if runs else {}
    each = (launch / "measures.json" for launch in path.glob("*/*"))
    written = sorted(file for file in each if os.path.lexists(file))  # lexists: a link to a missing file counts
    if not written:
        return Subject(str(path), None, scaled, machine)
    try:
        measures = _written(written[-1])
        why = (
            ""
            if measures
            else f"{written[-1]}: not written by ringscope; remove it, and measure the recordings beside it again"
        )
    except RingscopeError as error:  # the scaling can be judged without measures
        measures, why = None, str(error)
    return Subject(str(path), measures, scaled, machine, beside(written[-1]), why)


def _written(path: Path) -> Measures | None:
    """Read measures from a file; None if the file is something else, such as a recording. Raises RingscopeError."""
    from ..model import measures_json as view

    if not path.is_file():
        raise RingscopeError(f"{path}: not a file; name measures that ringscope wrote, or recordings")
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
            file.seek(max(file.seek(0, os.SEEK_END) - _HEAD_BYTES, 0))
            tail = file.read(_HEAD_BYTES)  # another tool may have sorted the keys, which puts the schema last
    except OSError as error:
        raise opening.unopened(path, error) from None
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or _MEASURES not in head + tail:
        return None
    return view.load(path)


def measured(paths: Sequence[Path], progress: Progress | None = None) -> Measures:
    """The measures of the given paths. `progress`: as in `analysis.analyse`. Raises RingscopeError if the paths have
    none."""
    found = load(paths, progress=progress)
    if found.measures is None:
        none = f"{found.label}: no recording in it; record with ringscope record, or name recordings"
        raise RingscopeError(found.unmeasured or none)
    return found.measures
