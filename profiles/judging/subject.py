"""What `gate` and `compare` are given: a run directory, measures that were written down, or recordings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..measures import Measures
from ..records import RunRecord
from ..scaling.measure import Scaling

if TYPE_CHECKING:
    from ..verdicts import Context


@dataclass(frozen=True, slots=True)
class Subject:
    """`measures` of its recordings, `scaling` of its launches; None where it has none of them."""

    label: str
    measures: Measures | None
    scaling: Scaling | None
    machine: dict[str, Any] = field(default_factory=dict)
    record: RunRecord | None = None  # the launch the recordings belong to


def load(paths: Sequence[Path], *, strict: bool = False) -> Subject:
    """One subject from the paths given. Raises RingscopeError where there is nothing to judge."""
    label = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if len(paths) == 1 and (paths[0] / "sweep.json").is_file():
        from .. import records
        from ..scaling import measure as scaling

        runs = records.read_runs(paths[0])
        scaled = scaling.measure(records.read_sweep(paths[0]), runs)
        written = sorted(paths[0].glob("*/*/measures.json"))
        measures = _written(written[-1]) if written else None
        machine = runs[0].record.machine if runs else {}
        return Subject(label, measures, scaled, machine, near(written[-1]) if written else None)
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix == ".json" and (found := _written(paths[0])):
        record = near(paths[0])
        return Subject(label, found, None, record.machine if record else {}, record)
    if len(paths) == 1 and (paths[0] / "measures.json").is_file():
        return load([paths[0] / "measures.json"], strict=strict)
    from ..analysis import measure
    from ..readers import read_all

    timelines, doubts = read_all(paths, strict=strict)
    record = near(Path(timelines[0].recording.path))
    measures = measure(timelines, context=context(record))
    measures.doubts += doubts
    return Subject(label, measures, None, record.machine if record else {}, record)


def context(record: RunRecord | None) -> Context | None:
    """What a launch's record tells the verdicts."""
    from ..verdicts import Context

    return Context(cell=record.cell, machine=record.machine) if record else None


def near(path: Path) -> RunRecord | None:
    """The record of the launch that a file belongs to, where one lies beside it."""
    beside = path.parent / "record.json"
    if not beside.is_file():
        return None
    try:
        return RunRecord.from_json(json.loads(beside.read_text()))
    except (ValueError, KeyError, TypeError):
        return None


def _written(path: Path) -> Measures | None:
    """Measures from a JSON file; None where it holds something else, such as a Kineto recording."""
    from .. import measures_json as view
    from ..measures import SCHEMA

    with path.open("rb") as file:
        if SCHEMA.encode() not in file.read(4096):
            return None
    return view.load(path)
