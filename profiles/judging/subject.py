"""What `gate` and `compare` are given: a run directory, measures that were written down, or recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RingscopeError
from ..measures import Measures
from ..records import RunRecord, beside
from ..scaling.measure import Scaling


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
        return Subject(label, measures, scaled, machine, beside(written[-1]) if written else None)
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix == ".json" and (found := _written(paths[0])):
        record = beside(paths[0])
        return Subject(label, found, None, record.machine if record else {}, record)
    if len(paths) == 1 and (paths[0] / "measures.json").is_file():
        return load([paths[0] / "measures.json"], strict=strict)
    from ..analysis import analyse

    measures = analyse(paths, strict=strict).measures
    record = beside(Path(measures.recordings[0].path))
    return Subject(label, measures, None, record.machine if record else {}, record)


def _written(path: Path) -> Measures | None:
    """Measures from a JSON file; None where it holds something else, such as a Kineto recording."""
    from .. import measures_json as view
    from ..measures import SCHEMA

    if not path.is_file():
        raise RingscopeError(f"{path}: not a file; name measures that ringscope wrote, or recordings")
    with path.open("rb") as file:
        if SCHEMA.encode() not in file.read(4096):
            return None
    return view.load(path)
