"""Forecasts from points and sweeps: against the curve and the network alone; the command; what is refused."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.published_scaling import every, series
from profiles.doubts.sweeps import shared_cores
from profiles.ground.errors import RingscopeError
from profiles.predicting import curve, throughput
from profiles.predicting.curve import Point
from profiles.predicting.network import Network, added, network
from profiles.predicting.throughput import Hosts
from profiles.runs.cell import Cell
from profiles.scaling.measure import Scaling
from profiles.scaling.rows import CellRow
from profiles.verbs import predict
from tests.figures import figures

DGX2 = [Point(1, 1492), Point(2, 2935)]
PLAIN = Cell("mlp", 1, 64)


def sweep(*cells: tuple[Cell, float | None]) -> Scaling:
    return Scaling([], [CellRow(cell, 1, 1, "ok", "", samples_per_s_global=rate) for cell, rate in cells], [], [])


def said(words: str, code: int = 0) -> str:
    result = CliRunner().invoke(predict.command, shlex.split(words), catch_exceptions=code != 0)
    assert code or result.exit_code == 0
    return str(result.exception) if code else result.output


def test_measured_points_stand_as_they_are_between_what_is_expected() -> None:
    found = throughput.of_points("", [*DGX2, Point(8, 11368)], [4, 16])
    assert [(row.gpus, row.measured) for row in found.rows] == [
        (1, True),
        (2, True),
        (4, False),
        (8, True),
        (16, False),
    ]
    assert [row.per_s for row in found.rows if row.measured] == [1492, 2935, 11368]
    assert found.rows[3].efficiency == 11368 / 8 / 1492
    (expected,) = curve.predict([*DGX2, Point(8, 11368)], [16])
    assert found.rows[4].efficiency == expected.efficiency
    assert [doubt.code for doubt in found.doubts] == ["hosts-assumed", "no-host-crossed"]


def test_without_counts_it_is_asked_for_2_4_and_8_times_the_largest() -> None:
    assert [row.gpus for row in throughput.of_points("", DGX2, []).rows] == [1, 2, 4, 8, 16]


def test_a_curve_is_called_by_all_that_tells_it_from_the_others() -> None:
    cells = [replace(PLAIN, ranks=ranks, step=step) for step in ("fit", "compiled") for ranks in (1, 2)]
    found = throughput.of_sweep(sweep(*((cell, 100.0 * cell.ranks) for cell in cells)), [4])
    (alone,) = throughput.of_sweep(sweep(*((cell, 100.0 * cell.ranks) for cell in cells[:2])), [4])
    assert alone.label.startswith("mlp, ") and figures(alone.label) == ["64"]
    assert [one.label for one in found] == [f"{alone.label}, step {step}" for step in ("fit", "compiled")]


def test_a_network_adds_its_time_to_the_step_of_a_host_and_none_inside_it() -> None:
    hosts = Hosts(2, Network(1, 1e9, 0), 10**7, 149)
    inside, across = (row for row in throughput.of_points("", DGX2, [2, 8], hosts).rows[1:])
    assert inside.per_s == 2935
    # A step of the curve's 2 GPUs, and 4 hosts: ring 2 x 3/4 x 10 ms = 15 ms, of which half of what backward could hide
    (two,) = curve.predict(DGX2, [2], 2)
    step_ns = 149 * 2 / two.per_s * 1e9
    longer = step_ns + 15e6 - 0.5 * 15e6
    assert across.per_s == pytest.approx(8 * 149 / longer * 1e9)
    assert across.efficiency == pytest.approx(two.efficiency * step_ns / longer)
    assert across.low == pytest.approx(two.low * step_ns / (step_ns + 15e6))
    assert added(4, 10**7, hosts.network, step_ns).least_ns == 0 and across.high == pytest.approx(two.high)


def test_with_a_known_overlap_there_is_nothing_to_assume() -> None:
    hosts = Hosts(2, Network(1, 1e9, 0), 10**7, 149, overlap=0.4)
    found = throughput.of_points("", DGX2, [8], hosts)
    row = found.rows[-1]
    (two,) = curve.predict(DGX2, [2], 2)
    step_ns = 149 * 2 / two.per_s * 1e9
    share = step_ns / (step_ns + 0.6 * 15e6)  # ring 2 x 3/4 x 10 ms, 0.4 of it hidden
    assert [row.efficiency, row.low, row.high] == [
        pytest.approx(end * share) for end in (two.efficiency, two.low, two.high)
    ]
    assert not found.doubts


def test_less_exchange_is_worth_what_the_network_is_then_spared() -> None:
    hosts = Hosts(2, Network(1, 1e9, 0), 10**8, 149)  # 150 ms of ring, more than backward of 101.5 ms hides
    _, half, aggregated = throughput.of_points("", DGX2, [4, 8], hosts).what_if
    (two,) = curve.predict(DGX2, [2], 2)
    step_ns = 149 * 2 / two.per_s * 1e9
    hidden_ns = 2 / 3 * step_ns
    assert half.row.gpus == aggregated.row.gpus == 8
    added_ns = 75e6 - 0.5 * min(75e6, hidden_ns)
    assert half.row.efficiency == pytest.approx(two.efficiency * step_ns / (step_ns + added_ns))
    added_ns = (150e6 - 0.5 * hidden_ns) / 2
    assert aggregated.row.efficiency == pytest.approx(two.efficiency * step_ns / (step_ns + added_ns))
    assert not throughput.of_points("", DGX2, [2], hosts).what_if
    words = (
        "--points 1:1492,2:2935 --ranks 8 --network 8Gb/s --gpus-per-host 2 --step-bytes 100000000 --per-rank-batch 149"
    )
    assert "8 GPUs, half the bytes (compression fp16): " in said(words)


def test_a_measured_network_predicts_what_the_same_one_does_in_words(tmp_path: Path) -> None:
    sizes = (1 << 16, 1 << 20, 1 << 26)
    # 2 hosts, 40 us and 2 GB/s: 2 latencies, and each byte once
    sweep = [{"bytes": size, "time_ns": 80_000 + size // 2} for size in sizes]
    (tmp_path / "net.json").write_text(json.dumps({"hosts": 2, "sweep": sweep}))
    words = "--points 1:1492,2:2935 --ranks 8 --gpus-per-host 2 --step-bytes 100000000 --per-rank-batch 149 --network"
    measured, typed = said(f"{words} {tmp_path / 'net.json'}"), said(f"{words} 16Gb/s,40us")
    assert measured == typed and "8 GPUs, half the bytes" in typed
    assert "write it as 8x200Gb/s,2us" in said(f"{words} {'9' * 400}x1Gb/s", code=2)


def test_exchanges_in_small_buffers_have_a_latency_each() -> None:
    hosts = Hosts(2, Network(1, 1e9, 50_000), 3 * 2**20 + 1, 149, overlap=0)
    whole = throughput.of_points("", DGX2, [8], hosts)
    small = whole.what_if[0]
    assert figures(small.change) == ["4", "1 MiB"]
    (two,) = curve.predict(DGX2, [2], 2)
    step_ns = 149 * 2 / two.per_s * 1e9
    # 4 hosts, latency 50 us: a tree of 2 levels is 4 latencies and 2 S / b, a ring 6 and 3/2 S / b
    moved_ns = 3 * 2**20 + 1
    for row, exchanges in ((whole.rows[-1], 1), (small.row, 4)):
        adds_ns = min(4 * 50_000 * exchanges + 2 * moved_ns, 6 * 50_000 * exchanges + 1.5 * moved_ns)
        assert row.efficiency == pytest.approx(two.efficiency * step_ns / (step_ns + adds_ns))
    one = throughput.of_points("", DGX2, [8], Hosts(2, Network(1, 1e9, 50_000), 2**20, 149)).what_if
    assert [each.change.split(" ")[0] for each in one] == ["half", "one"]


def test_a_point_out_of_line_a_far_count_and_an_assumed_overlap_are_doubted() -> None:
    def codes(points: list[Point], counts: list[int], hosts: Hosts | None = None) -> list[str]:
        return [doubt.code for doubt in throughput.of_points("", points, counts, hosts).doubts]

    assert codes([Point(1, 100), Point(2, 160)], [8]) == ["point-out-of-line"]
    assert codes(DGX2, [8]) == []
    assert codes([Point(1, 100), Point(2, 250)], [4]) == ["over-100-percent"]
    assert codes(DGX2, [16]) == ["hosts-assumed", "no-host-crossed"]
    crossed = [Point(8, 3936), Point(16, 6752)]
    assert codes(crossed, [256]) == ["hosts-assumed"]
    assert codes(crossed, [257]) == ["beyond-the-tables", "hosts-assumed"]
    assert codes(DGX2, [32], Hosts(8, network("25Gb/s"), 10**8, 256)) == ["overlap-assumed"]


def test_every_curve_of_weak_scaling_of_a_sweep_is_forecast_and_none_of_strong() -> None:
    two, other = replace(PLAIN, ranks=2), replace(PLAIN, feed="resident")
    strong = replace(PLAIN, global_batch=64, ranks=2)
    cells = [(PLAIN, 100.0), (two, 180.0), (other, 110.0), (replace(other, ranks=2), None), (strong, 170.0)]
    (found,) = throughput.of_sweep(sweep(*cells), [4])
    assert [(row.gpus, row.per_s) for row in found.rows if row.measured] == [(1, 100), (2, 180)]
    assert found.rows == throughput.of_points("", [Point(1, 100), Point(2, 180)], [4]).rows
    with pytest.raises(RingscopeError, match="bench --ranks 1,2"):
        throughput.of_sweep(sweep((PLAIN, 100.0), (strong, 170.0)), [4])


def test_ranks_that_share_cores_are_not_said_to_have_gone_wrong() -> None:
    cells = [(PLAIN, 100.0), (replace(PLAIN, ranks=2), 90.0)]
    measured = sweep(*cells)
    assert "point-out-of-line" in [doubt.code for doubt in throughput.of_sweep(measured, [4])[0].doubts]
    on_cores = replace(measured, doubts=[shared_cores()])
    assert [doubt.code for doubt in throughput.of_sweep(on_cores, [4])[0].doubts] == ["shared-cores"]


def test_where_another_gpu_stops_paying_is_said() -> None:
    found = throughput.of_points("", [Point(1, 100), Point(8, 400)], [])
    assert found.stops_paying == curve.worth_adding([Point(1, 100), Point(8, 400)])
    assert f"from {found.stops_paying} GPUs on" in said("--points 1:100,8:400")


def test_the_command_says_what_the_forecast_holds_on_80_columns() -> None:
    printed = said("--points 1:1492,2:2935 --ranks 16")
    (row,) = (row for row in throughput.of_points("", DGX2, [16]).rows if not row.measured)
    assert f"{row.per_s:,.0f}" in printed and f"{100 * row.efficiency:.1f} %" in printed
    assert max(map(len, printed.splitlines())) <= 80 and "…" not in printed
    found = json.loads(said("--points 1:1492,2:2935 --ranks 16 --json -"))
    assert found["schema"] == throughput.SCHEMA
    assert found["forecasts"][0]["rows"][-1]["efficiency"] == row.efficiency


def test_charts_are_written(tmp_path) -> None:
    said(f"--points 1:1492,2:2935 --charts {tmp_path}")
    assert {path.name for path in tmp_path.iterdir()} == {"efficiency.svg", "efficiency.png"}


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("", "name a run directory, recordings of 1 and of 2 ranks, or --points"),
        ("x --points 1:2,2:4", "name a run directory, recordings of 1 and of 2 ranks, or --points"),
        ("x y z", "name a run directory, recordings of 1 and of 2 ranks, or --points"),
        ("--points 1,2", "--points 1,2: write it as 1:1492,2:2935"),
        ("--points 1:inf,2:5", "prediction is for 1,000,000 GPUs and 1e+15 samples/s at most"),
        ("--points 1:5,2:9 --ranks 1000000000000000000000000", "prediction is for 1 to 1,000,000 GPUs"),
        ("--points 1:5", "prediction needs the throughput on two numbers of GPUs"),
        ("--points 1:100,2:200 --step-bytes 4", "--step-bytes has no effect without --network"),
        ("one two --ranks 4 --gpus-per-host 4", "--gpus-per-host has no effect with recordings"),
        ("--points 1:100,2:200 --network fast", "--network needs --gpus-per-host, --step-bytes and --per-rank-batch"),
        ("--points 1:100,2:200 --measured z", "--measured works only with recordings"),
        ("one two --ranks 4 --points 1:2,2:4", "--points has no effect with recordings"),
        ("run --per-rank-batch 4 --network 25Gb/s", "--per-rank-batch has no effect with a run directory"),
        (
            "--points 1:100,16:1500 --network 25Gb/s --gpus-per-host 8 --step-bytes 9 --per-rank-batch 1",
            "include the network already",
        ),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_one_line(words: str, refusal: str) -> None:
    assert refusal in said(words, code=2)


def test_every_published_series_gives_a_forecast() -> None:
    for one in every():
        found = throughput.of_points("", one.points, [], gpus_per_host=one.gpus_per_host)
        assert found.rows[-1].gpus == 8 * one.points[-1].gpus
        assert "hosts-assumed" not in [doubt.code for doubt in found.doubts]


def test_gpus_per_host_is_taken_and_where_it_is_not_given_assumed_with_a_doubt() -> None:
    points = ",".join(f"{point.gpus}:{point.per_s:g}" for point in series("mxnet", "DGX-2 AMP").points[:4])
    told, assumed = (
        json.loads(said(f"--points {points} --ranks 16 {words} --json -"))["forecasts"][0]
        for words in ("--gpus-per-host 16", "")
    )
    codes = [[doubt["code"] for doubt in each["doubts"]] for each in (told, assumed)]
    assert codes == [[], ["hosts-assumed", "no-host-crossed"]]
    assert told["rows"][-1]["low"] > assumed["rows"][-1]["low"] + 0.1
