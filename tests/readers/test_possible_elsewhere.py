"""Rows that cannot be where a recording puts them, in the formats of AMD's tools, of XLA and of `nsys stats`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profiles import readers
from profiles.model.possible import AT_ZERO, DAY_NS, ENDS_EARLY, OUTSIDE
from profiles.model.tables import COLUMNS

from . import test_nsys_stats_csv as stats
from . import test_rocpd as rocpd
from . import test_rocprof as rocprof
from . import test_rocprofv3 as v3
from . import test_xla_trace as xla
from . import test_xplane as xplane

# (reason, start, end) of a kernel that cannot be, from the first operation of the recording on; None: its own 0.
PLANTED: list[tuple[str, int | None, int]] = [
    (AT_ZERO, None, 0),
    (ENDS_EARLY, 900_000, 800_000),
    (OUTSIDE, 2 * DAY_NS, 2 * DAY_NS + 5000),
    (OUTSIDE, 9 * DAY_NS, 9 * DAY_NS + 5000),
]


def v3_made(planted: bool) -> v3.Made:
    made = v3.training()
    for _, start, end in PLANTED if planted else ():
        made.kernel(1, -v3.T if start is None else start, -v3.T if start is None else end, 77)
    return made


def rocprof_text(path: Path, planted: bool) -> None:
    events = rocprof.steps()
    for _, start, end in PLANTED if planted else ():
        times = (0, 0) if start is None else (rocprof.T + start, rocprof.T + end)
        events.append(rocprof.did(6, "conv(float*)", *times))
    rocprof.results(path, *events)


def xplane_bytes(path: Path, planted: bool) -> None:
    space = xplane.gpu_space()
    base = 10**15
    for plane in space.planes:
        for line in plane.lines:
            line.timestamp_ns += base
    for _, start, end in PLANTED if planted else ():
        line = space.planes[0].lines.add(id=13, name="Stream #13(Compute)", timestamp_ns=0)
        line.timestamp_ns = 0 if start is None else base + start
        event = line.events.add(metadata_id=1, duration_ps=0 if start is None else 1000 * (end - start))
        event.stats.extend(space.planes[0].lines[0].events[0].stats)
    path.write_bytes(space.SerializeToString())


def xla_text(path: Path, planted: bool) -> None:
    def kernel(start: int, length: int) -> dict[str, Any]:
        return {"ph": "X", "pid": 1, "tid": 2, "name": "fusion", "ts": start / 1000, "dur": length / 1000}

    base = 10**14
    events = [kernel(base + 10_000 * number, 5000) for number in range(20)]
    for _, start, end in PLANTED if planted else ():
        events.append(kernel(0, 0) if start is None else kernel(base + start, end - start))
    path.write_text(xla.made(*events))


def stats_text(path: Path, planted: bool) -> None:
    base = 10**14
    row = "{},{},7,1,1,1,1,1,1,32,0,0,,,,,A100 (0),1,7,k"
    rows = [row.format(base + 10_000 * number, 5000) for number in range(20)]
    for _, start, end in PLANTED if planted else ():
        rows.append(row.format(0, 0) if start is None else row.format(base + start, end - start))
    path.write_text(stats.COLUMNS.format(rate="MB/s", green="") + "\n" + "\n".join(rows) + "\n")


WRITE: dict[str, tuple[str, Callable[[Path, bool], Any]]] = {
    "rocprofv3": ("908_results.json", lambda path, planted: v3.results(path, v3_made(planted))),
    "rocpd": ("results.db", lambda path, planted: rocpd.database(path, v3_made(planted))),
    "rocprof": ("results.json", rocprof_text),
    "xplane": ("host.xplane.pb", xplane_bytes),
    "xla-trace": ("trace.json", xla_text),
    "nsys-stats-csv": ("trace.csv", stats_text),
}


@pytest.mark.parametrize("kind", WRITE)
def test_every_other_format_leaves_out_what_cannot_be_and_nothing_else(kind: str, tmp_path: Path) -> None:
    name, write = WRITE[kind]
    path = tmp_path / name
    write(path, False)
    without = readers.read(path)
    path.unlink()
    write(path, True)
    found = readers.read(path)
    for table in COLUMNS:
        # rocprof's calls and kernels are joined by their order, in which a kernel without a time has no place.
        left, right = (getattr(one, table) for one in (found, without))
        if kind == "rocprof" and table == "kernels":
            assert (left["correlation"][left["name"] == "relu(float*)"] >= 0).all()
            left = left.assign(correlation=right["correlation"])
        pd.testing.assert_frame_equal(left, right)
    assert found.recording == without.recording
    new = {key: value for key, value in found.left_out.items() if value != without.left_out.get(key)}
    assert new == {f"{AT_ZERO}: kernels": 1, f"{ENDS_EARLY}: kernels": 1, f"{OUTSIDE}: kernels": 2}
    (doubt,) = [doubt for doubt in found.doubts if doubt not in without.doubts]
    assert doubt.code == "impossible-times" and json.dumps(doubt.text).count("4 events")
