"""Tables of nsys's with `_V2` and `_V3` behind their names, and rows in no order."""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profiles import read
from profiles.model.tables import TABLES
from profiles.model.timeline import Timeline
from profiles.readers import cut, span
from tests.recordings import DATA

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def unpacked(name: str, tmp_path: Path) -> Path:
    path = tmp_path / f"{name}.sqlite"
    path.write_bytes(lzma.decompress((DATA / "made" / f"{name}.sqlite.xz").read_bytes()))
    return path


def table(timeline: Timeline, name: str) -> pd.DataFrame:
    found: pd.DataFrame = getattr(timeline, name)
    ordered = found.sort_values([*found.columns], kind="stable", ignore_index=True)
    texts = [column for column in ordered if str(ordered[column].dtype) == "category"]
    return ordered.assign(**{column: ordered[column].astype(str) for column in texts})


def test_rows_in_no_order_of_tables_of_the_second_version_are_those_in_order_of_the_first(tmp_path: Path) -> None:
    first, second = (read(unpacked(name, tmp_path)) for name in ("shuf", "v2"))
    for name in TABLES:
        one, other = (table(timeline, name) for timeline in (first, second))
        pd.testing.assert_frame_equal(one.sort_values([*one]), other.sort_values([*other]), check_dtype=False)
    assert len(first.kernels) == 320 and first.known == second.known


@pytest.mark.parametrize("read_too", ["", "_V1", "_V2"])
def test_of_several_versions_the_highest_is_read(read_too: str, tmp_path: Path) -> None:
    """A tenth version beside older ones, with one kernel less: neither the first nor the last by name."""
    path = unpacked("shuf", tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {KERNEL}_V10 AS SELECT * FROM {KERNEL} WHERE rowid > 1")
        if read_too:
            connection.execute(f"ALTER TABLE {KERNEL} RENAME TO {KERNEL}{read_too}")
    assert len(read(path).kernels) == 319


@pytest.mark.parametrize("stripped", [False, True])
def test_a_cut_of_the_second_version_is_that_of_the_first(stripped: bool, tmp_path: Path) -> None:
    """From the middle of a step on, whose mark is left out."""
    cuts = []
    for name in ("shuf", "v2"):
        whole = unpacked(name, tmp_path)
        start = int(read(whole).kernels["start_ns"].quantile(0.5))
        target = tmp_path / f"{name}.cut.sqlite"
        cut.write(whole, target, within=span.Span(start, None), shrink=True, strip_private=stripped)
        cuts.append(read(target))
    first, second = cuts
    assert 0 < len(first.kernels) < 320 and len(first.marks) > 3
    for name in TABLES:
        one, other = (table(timeline, name) for timeline in cuts)
        pd.testing.assert_frame_equal(one.sort_values([*one]), other.sort_values([*other]), check_dtype=False)
    assert second.recording.tool_version == first.recording.tool_version
