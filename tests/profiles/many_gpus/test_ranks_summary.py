"""The summary of many GPUs, against plain Python over the whole JSON; who was made slow on purpose is found."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import median_low
from typing import Any

import pytest

import ringscope
from benchmarks.tables import timeline
from benchmarks.training import Shape
from profiles.many_gpus.ranks_summary import METRICS, dumps, hosts_of, shown_one_by_one, summarise
from profiles.model import measures_json
from profiles.model.measures import MANY_GPUS, OWNERS, Measures
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.verdicts import find

ALIKE = Shape(
    steps=12, kernels=12, gpus=32, processes=32, skew_ns=50, hidden_ns=150_000, kernel_ns=20_000, feed_ns=100_000
)
HOSTS = [f"node{rank // 8}" for rank in range(32)]


def measured(shape: Shape) -> Measures:
    return ringscope.measure([timeline(shape, range(rank, rank + 1)) for rank in range(shape.gpus)])


@pytest.fixture(scope="module")
def one_slow() -> Measures:
    return measured(replace(ALIKE, slow_gpus=(19,), late_ns=2_000_000))


@pytest.fixture(scope="module")
def host_slow() -> Measures:
    return measured(replace(ALIKE, slow_gpus=tuple(range(8, 16)), late_ns=2_000_000))


def plain(measures: Measures) -> Any:
    return json.loads(measures_json.dumps(measures))


def of_metric(gpu: Any, metric: str) -> int:
    """ns of all measured steps."""
    if metric == "step":
        return int(gpu["span_ns"])
    return int(gpu["collectives"]["waiting_ns"] if metric == "waiting" else gpu["ledger_ns"][metric])


def test_each_spread_is_what_plain_python_finds_in_the_whole_json(one_slow: Measures) -> None:
    gpus = plain(one_slow)["gpus"]
    spreads = {one.metric: one for one in summarise(one_slow).spreads}
    for metric in METRICS:
        # Every owner of this run takes whole microseconds, so halves need no rule here.
        values = [round(of_metric(gpu, metric) / gpu["steps"]["count"]) for gpu in gpus]
        if not any(values):
            assert metric not in spreads
            continue
        found = spreads[metric]
        assert (found.min_ns, found.median_ns, found.max_ns) == (min(values), median_low(values), max(values))
        assert (values[found.min_gpu], values[found.max_gpu]) == (min(values), max(values))
        distances = [abs(value - median_low(values)) for value in values]
        assert found.sigma_ns == pytest.approx(1.4826 * median_low(distances))
        assert found.unknown == 0


def test_outliers_are_those_beyond_five_sigma_and_a_hundredth_of_the_step(one_slow: Measures) -> None:
    gpus = plain(one_slow)["gpus"]
    step = median_low([gpu["span_ns"] / gpu["steps"]["count"] for gpu in gpus])
    expected = set()
    for metric in METRICS:
        values = [of_metric(gpu, metric) / gpu["steps"]["count"] for gpu in gpus]
        middle = median_low(values)
        sigma = 1.4826 * median_low([abs(value - middle) for value in values])
        expected |= {
            (place, metric)
            for place, value in enumerate(values)
            if abs(value - middle) > 5 * sigma and abs(value - middle) > 0.01 * step
        }
    found = {(one.gpus[0], each.metric) for one in summarise(one_slow).outliers for each in one.differences}
    assert found == expected == {(19, "compute"), (19, "collective"), (19, "waiting")}


def test_the_planted_slow_rank_is_the_first_finding_and_the_only_outlier(one_slow: Measures) -> None:
    first = one_slow.findings[0]
    assert first.gpu == 19 and "rank 19" in first.text
    (outlier,) = summarise(one_slow).outliers
    assert (outlier.what, outlier.name, outlier.gpus) == ("gpu", "rank 19, GPU 19", [19])
    compute = outlier.differences[0]
    assert (compute.metric, compute.difference_ns, compute.sigmas) == ("compute", 2_000_000, None)


def test_the_planted_slow_host_is_the_first_finding_and_one_outlier(host_slow: Measures) -> None:
    assert "ranks 8 to 15" in host_slow.findings[0].text and host_slow.findings[0].evidence["gpus"] == [*range(8, 16)]
    assert [finding.code for finding in host_slow.findings].count("slow-gpu") == 1
    summary = summarise(host_slow, HOSTS)
    (outlier,) = summary.outliers
    assert (outlier.what, outlier.name, outlier.gpus) == ("host", "node1", [*range(8, 16)])
    assert (outlier.differences[0].metric, outlier.differences[0].difference_ns) == ("compute", 2_000_000)
    assert [one.host for one in summary.hosts] == ["node1", "node0", "node2", "node3"]
    slow, usual = summary.hosts[0].median_ns, summary.hosts[1].median_ns
    assert slow["compute"] - usual["compute"] == 2_000_000
    # Without hosts each of the eight is named.
    assert [one.gpus for one in summarise(host_slow).outliers] == [[rank] for rank in range(8, 16)]


def test_nobody_differs_where_all_are_alike() -> None:
    measures = measured(replace(ALIKE, gpus=12, processes=12))
    assert summarise(measures).outliers == []
    assert not {"slow-gpu", "straggler"} & {finding.code for finding in measures.findings}


def test_collectives_are_worth_less_than_the_rank_that_the_others_wait_for() -> None:
    of_twelve = measured(replace(ALIKE, gpus=12, processes=12, slow_gpus=(5,), late_ns=500_000))
    codes = [finding.code for finding in of_twelve.findings]
    gains = {finding.code: finding.at_most_gain or 0 for finding in of_twelve.findings}
    # Priced with the waiting it is worth more, and yet comes later: without the slow rank little of it is left.
    assert gains["all-reduce-exposed"] > gains["slow-gpu"]
    assert codes.index("slow-gpu") < codes.index("straggler") < codes.index("all-reduce-exposed")
    few = replace(of_twelve, gpus=of_twelve.gpus[:MANY_GPUS], straggler=None)
    codes = [finding.code for finding in find(few)]
    assert not few.many and codes.index("slow-gpu") < codes.index("all-reduce-exposed")


def test_doubts_are_told_once_with_the_number_of_places(one_slow: Measures) -> None:
    doubts = plain(one_slow)["doubts"]
    places = {where for doubt in doubts if doubt["code"] == "collective-bytes-unknown" for where in doubt["where"]}
    (found,) = (one for one in summarise(one_slow).doubts if one.code == "collective-bytes-unknown")
    assert found.places == len(places) >= 32


def test_the_json_of_a_summary_has_its_schema_first_and_no_long_list_of_gpus(host_slow: Measures) -> None:
    data = json.loads(dumps(summarise(host_slow, HOSTS)))
    assert next(iter(data)) == "schema" and data["schema"] == "ringscope.summary/1"
    assert {one["metric"] for one in data["spreads"]} <= {"step", "waiting", *OWNERS}
    lists = [value for finding in data["findings"] for value in finding["evidence"].values() if isinstance(value, list)]
    assert all(len(value) <= 8 for value in lists)
    counted = [finding["evidence"].get("gpus") for finding in data["findings"] if finding["code"] == "model-too-small"]
    assert all(one is None or one["count"] <= 32 for one in counted)


def test_a_rank_record_beside_a_recording_tells_its_host(tmp_path) -> None:
    write_rank(tmp_path / "rank0.jsonl", RankRecord(0, 4, 0, "node7", None, 0, 1, 1, [1], [0]))
    (tmp_path / "rank1.jsonl").write_text("not a record\n")
    timelines = [timeline(replace(ALIKE, gpus=4, processes=4), range(rank, rank + 1)) for rank in range(4)]
    told = {2: "node8", 0: "node9"}  # by the recordings themselves
    placed = [
        replace(one.recording, path=str(tmp_path / f"rank{rank}.sqlite"), host=told.get(rank))
        for rank, one in enumerate(timelines)
    ]
    read = [replace(one, recording=recording) for one, recording in zip(timelines, placed, strict=True)]
    # The record of the rank says what the launcher called the host, which is what people know it by.
    assert hosts_of(ringscope.measure(read)) == ["node7", None, "node8", None]


def test_a_page_shows_the_first_the_last_and_the_outliers_and_all_that_were_asked_for(one_slow: Measures) -> None:
    summary = summarise(one_slow)
    assert shown_one_by_one(summary)[0] == 0 and {0, 19, 31} <= set(shown_one_by_one(summary))
    assert set(shown_one_by_one(summary, range(5, 25))) >= {0, *range(5, 25), 31}
    assert len(shown_one_by_one(summary)) <= 12
