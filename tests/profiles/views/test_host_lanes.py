"""The host in pictures: every range and call of a real recording, once, nested ones in lanes of their own."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from profiles import analyse
from profiles.model.analysed import Analysis
from profiles.model.measures import HOST
from profiles.views.charts import lanes
from profiles.views.charts.lanes import KINDS, of_host
from profiles.views.files import perfetto
from profiles.views.page import page, picture
from tests.made.build import Build
from tests.recordings import DATA, rows

RECORDING = DATA / "resnet50-2gpu-in-stream.rank0.sqlite.xz"
HAS_LENGTH = "eventType in (59, 60, 70, 71) and end > start"


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse([RECORDING], operations=True)


def test_every_call_and_range_is_on_a_lane_of_its_thread_and_none_overlaps(analysis: Analysis) -> None:
    host = analysis.gpus[0].host
    assert host is not None
    calls = dict(
        rows(
            RECORDING,
            "select globalTid & 0xFFFFFF, count(*) from CUPTI_ACTIVITY_KIND_RUNTIME where end > start group by 1",
        )
    )
    ranges = dict(
        rows(RECORDING, f"select globalTid & 0xFFFFFF, count(*) from NVTX_EVENTS where {HAS_LENGTH} group by 1")
    )
    found: dict[str, Counter[int]] = {"host_call": Counter(), "host_range": Counter()}
    for lane in of_host(host):
        assert (lane.start_ns[1:] >= lane.end_ns[:-1]).all() and (lane.end_ns > lane.start_ns).all()
        thread = int(lane.name.split()[1])
        for kind, count in zip(*np.unique(lane.kind, return_counts=True), strict=True):
            found[KINDS[kind]][thread] += int(count)
    assert found == {"host_call": Counter(calls), "host_range": Counter(ranges)}


def test_the_trace_for_perfetto_has_the_host_beside_its_gpu(analysis: Analysis, tmp_path: Path) -> None:
    written = perfetto.write(analysis, tmp_path / "out.json.gz")
    with gzip.open(tmp_path / "out.json.gz") as file:
        events = json.load(file)["traceEvents"]
    slices = [one for one in events if one["ph"] == "X"]
    assert len(slices) == written
    calls = rows(RECORDING, "select count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_RUNTIME where end > start")[0]
    of_calls = [one for one in slices if one["cat"] == "host_call"]
    assert (len(of_calls), round(sum(one["dur"] for one in of_calls) * 1000)) == calls
    titles = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert titles == {1: "rank 0, GPU 0", 2: "host of rank 0, GPU 0"}
    assert {one["pid"] for one in slices if one["cat"] in HOST} == {2}


def test_one_process_with_two_gpus_is_written_once(tmp_path: Path) -> None:
    made = Build()
    made.kernel(100, 200, call=(10, 20))
    made.kernel(100, 200, call=(30, 40), device=1)
    made.operator("op", 5, 50)
    perfetto.write(analyse([made.timeline()], operations=True), tmp_path / "out.json.gz")
    with gzip.open(tmp_path / "out.json.gz") as file:
        slices = [one for one in json.load(file)["traceEvents"] if one["ph"] == "X" and one["cat"] in HOST]
    assert Counter(one["cat"] for one in slices) == {"host_call": 2, "host_operator": 1}


def test_the_page_draws_the_busiest_threads_below_the_streams(analysis: Analysis) -> None:
    text = page.render(title="x", command="y", analysis=analysis)
    assert "CUDA call" in text and 'id="find"' in text


def test_the_picture_says_names_of_xla_in_words() -> None:
    made = Build()
    made.kernel(100, 200, name="loop_add_fusion_3", call=(10, 20))
    made.mark("Thunk:#hlo_op=command_buffer#", 120, 150, domain="TSL")
    packed = gzip.decompress(base64.b64decode(picture.pack(analyse([made.timeline()], operations=True))))
    header = json.loads(packed[4 : 4 + int.from_bytes(packed[:4], "little")])
    said = {"loop_add_fusion_3: element-wise work (add)", "XLA, a CUDA graph (command_buffer)"}
    assert said <= set(header["labels"]) and not any("hlo_op=" in label for label in header["labels"])


def test_what_is_not_drawn_keeps_nothing_of_the_host() -> None:
    assert analyse([RECORDING]).gpus[0].host is None


def test_ranges_nested_deeper_than_any_stack_are_drawn_as_far_as_that() -> None:
    start = np.arange(3000)
    layers = lanes.layer(start, 10_000 - start)
    assert layers.tolist() == [nth if nth < lanes._MOST_LAYERS else -1 for nth in range(3000)]
