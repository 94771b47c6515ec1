"""Throughput, efficiency and its error on hand-made launches whose answers are worked out by hand."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from profiles.runs.rank_records import RankRecord
from profiles.runs.records import Cell, Run, RunRecord, SweepRecord
from profiles.scaling import first_looks, rows, run_directory
from profiles.scaling.measure import Scaling, measure
from profiles.scaling.rows import CellRow, LaunchRow, column_names, columns, launch_row, samples_per_s
from profiles.scaling.run_directory import csv_text
from profiles.verbs import report
from profiles.views.terminal import sweep as view

MS = 1_000_000
ONE = Cell("resnet50", 1, 64)


def rank(number: int, *, start_ms: float = 0, end_ms: float, samples: int = 640, **more: Any) -> RankRecord:
    """Ten equal steps, a tenth of each spent waiting."""
    start_ns, end_ns = int(start_ms * MS), int(end_ms * MS)
    step_ns = (end_ns - start_ns) // 10
    facts: dict[str, Any] = {"size": 2, "local_rank": number, "host": "a", "device": f"GPU-{number}"} | more
    return RankRecord(
        rank=number,
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        samples=samples,
        step_ns=[step_ns] * 10,
        input_wait_ns=[step_ns // 10] * 10,
        **facts,
    )


def run(cell: Cell, launch: int, ranks: Sequence[RankRecord], *, status: str = "ok", **more: Any) -> Run:
    facts: dict[str, Any] = {"reason": "", "machine": {"host": "a", "gpus": [{}]}} | more
    record = RunRecord(
        cell, launch, status, started_utc_ns=launch, finished_utc_ns=0, command=[], launcher="x", **facts
    )
    return Run(record, list(ranks), Path("x"))


def sweep_of(cells: dict[Cell, Sequence[float]]) -> Scaling:
    """A sweep in which each cell's launches took so many ms for ten steps."""
    runs = [
        run(cell, launch, [rank(k, end_ms=ms) for k in range(cell.ranks)])
        for cell, took in cells.items()
        for launch, ms in enumerate(took)
    ]
    return measure(SweepRecord(list(cells), max(map(len, cells.values())), "x"), runs)


def row(scaling: Scaling, cell: Cell) -> CellRow:
    return next(row for row in scaling.cells if row.cell == cell)


def test_throughput_is_all_samples_over_first_start_to_last_end() -> None:
    ranks = [rank(0, start_ms=0, end_ms=1000), rank(1, start_ms=250, end_ms=1600)]
    assert samples_per_s(ranks) == pytest.approx(1280 / 1.6)


@pytest.mark.parametrize(("last_ms", "known"), [(90, True), (91, False)])
def test_steps_of_a_host_that_ran_ahead_of_its_device_have_no_time(last_ms: int, known: bool) -> None:
    """Keras on JAX on a CPU: launched in 10 ms each, and the last step waits for all of them."""
    ahead = replace(rank(0, end_ms=90 + last_ms), step_ns=[10 * MS] * 9 + [last_ms * MS])
    found = launch_row(run(ONE, 0, [ahead]))
    assert (found.step_ms_p50, found.step_ms_p95) == ((10, last_ms) if known else (None, None))
    assert found.samples_per_s_global == pytest.approx(640e3 / (90 + last_ms))


def test_a_hosts_clock_offset_is_taken_off_its_times() -> None:
    # b's clock is 500 ms ahead: what it calls 500..1500 is 0..1000.
    ranks = [rank(0, end_ms=1000), rank(1, start_ms=500, end_ms=1500, host="b", clock_offset_ns=500 * MS)]
    assert samples_per_s(ranks) == pytest.approx(1280 / 1.0)
    scaling = measure(SweepRecord([replace(ONE, ranks=2)], 1, "x"), [run(replace(ONE, ranks=2), 0, ranks)])
    assert "clock-offset" in {doubt.code for doubt in scaling.doubts}
    assert scaling.launches[0].clock_offset_ms_max == 500


@pytest.mark.parametrize(("offset_us", "doubted"), [(999, False), (1001, True)])
def test_an_offset_is_doubted_above_a_thousandth_of_the_window(offset_us: int, doubted: bool) -> None:
    two = replace(ONE, ranks=2)
    shift_ms = offset_us / 1000
    behind = rank(1, start_ms=shift_ms, end_ms=1000 + shift_ms, host="b", clock_offset_ns=offset_us * 1000)
    ranks = [rank(0, end_ms=1000), behind]
    found = measure(SweepRecord([two], 1, "x"), [run(two, 0, ranks)]).doubts
    assert ("clock-offset" in {doubt.code for doubt in found}) == doubted


@pytest.mark.parametrize(
    ("strategy", "set_by_ms", "doubted"),
    [("horovod", 99, False), ("horovod", 101, True), ("horovod", -101, True), ("independent", 500, False)],
)
def test_a_clock_that_is_set_between_the_ranks_is_a_doubt_where_they_train_together(
    strategy: str, set_by_ms: int, doubted: bool
) -> None:
    two = replace(ONE, ranks=2, strategy=strategy)
    ranks = [rank(0, start_ms=1000, end_ms=2000), rank(1, start_ms=1000 + set_by_ms, end_ms=2000 + set_by_ms)]
    found = measure(SweepRecord([two], 1, "x"), [run(two, 0, ranks)]).doubts
    assert ("windows-apart" in {doubt.code for doubt in found}) == doubted


def test_weak_efficiency_is_throughput_over_n_times_one_rank() -> None:
    two = replace(ONE, ranks=2)
    scaling = sweep_of({ONE: [1000, 1000, 1000], two: [1250, 1250, 1250]})
    assert row(scaling, two).efficiency == pytest.approx(0.8)
    assert row(scaling, two).speedup == pytest.approx(1.6)
    assert row(scaling, ONE).efficiency == 1.0


def test_strong_scaling_compares_equal_batches_over_all_ranks() -> None:
    one = Cell("gru", 1, 128, global_batch=128)
    two = Cell("gru", 2, 64, global_batch=128)
    other = Cell("gru", 1, 64)
    ranks = [rank(k, end_ms=600, samples=320) for k in range(2)]
    runs = [run(one, 0, [rank(0, end_ms=1000)]), run(two, 0, ranks), run(other, 0, [rank(0, end_ms=1)])]
    scaling = measure(SweepRecord([one, two, other], 1, "x"), runs)
    assert row(scaling, two).speedup == pytest.approx(1000 / 600)
    assert row(scaling, two).efficiency == pytest.approx(1000 / 600 / 2)


def test_efficiency_is_unknown_without_the_one_rank_cell() -> None:
    two = replace(ONE, ranks=2)
    found = row(sweep_of({two: [1000] * 3, replace(ONE, feed="device"): [1000] * 3}), two)
    assert (found.efficiency, found.speedup, found.efficiency_error) == (None, None, None)


def test_errors_of_both_cells_are_carried_into_efficiency() -> None:
    two = replace(ONE, ranks=2)
    found = row(sweep_of({ONE: [1000, 1010, 990], two: [1200, 1260, 1140]}), two)
    # Medians 640 and 1280 / 1.2; deviations from the median: by hand, from the launches' throughputs.
    x1 = [640 / (ms / 1000) for ms in (1000, 1010, 990)]
    x2 = [1280 / (ms / 1000) for ms in (1200, 1260, 1140)]
    sigma1 = 1.4826 * sorted(abs(x - x1[0]) for x in x1)[1]
    sigma2 = 1.4826 * sorted(abs(x - x2[0]) for x in x2)[1]
    efficiency = x2[0] / x1[0] / 2
    assert found.efficiency == pytest.approx(efficiency)
    assert found.efficiency_error == pytest.approx(efficiency * math.hypot(sigma1 / x1[0], sigma2 / x2[0]))
    assert found.efficiency_low == pytest.approx(min(x2) / max(x1) / 2)
    assert found.efficiency_high == pytest.approx(max(x2) / min(x1) / 2)
    assert found.efficiency_coverage == pytest.approx(0.5)  # 3 launches cover 75 % each


def test_a_failed_launch_is_a_row_and_not_a_number() -> None:
    runs = [run(ONE, 0, [rank(0, end_ms=1000)]), run(ONE, 1, [], status="oom", reason="rank 0: no memory")]
    scaling = measure(SweepRecord([ONE], 2, "x"), runs)
    assert [line.status for line in scaling.launches] == ["ok", "oom"]
    assert scaling.launches[1].samples_per_s_global is None
    found = row(scaling, ONE)
    assert (found.ok, found.status, found.reason) == (1, "oom", "rank 0: no memory")
    assert found.samples_per_s_global == pytest.approx(640)


def test_launches_under_a_profiler_are_kept_apart() -> None:
    runs = [run(ONE, 0, [rank(0, end_ms=1000)]), run(ONE, 1, [rank(0, end_ms=5000)], profiled="nsys")]
    scaling = measure(SweepRecord([ONE], 1, "x"), runs)
    assert len(scaling.launches) == 2
    assert row(scaling, ONE).samples_per_s_global == pytest.approx(640)


def test_a_cell_that_was_only_recorded_says_so() -> None:
    scaling = measure(SweepRecord([ONE], 1, "x"), [run(ONE, 0, [rank(0, end_ms=5000)], profiled="nsys")])
    assert row(scaling, ONE).samples_per_s_global is None
    reason = (
        "all launches were recorded by nsys, so their timings do not count; ringscope timeline shows the recordings"
    )
    assert row(scaling, ONE).reason == reason


def test_cells_that_were_not_launched_are_compared_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid may have thousands of them."""
    compared: list[Cell] = []
    monkeypatch.setattr(rows, "same_but_ranks", lambda cell, other: bool(compared.append(cell)))
    monkeypatch.setattr(first_looks, "_only_axis", lambda cell, other: compared.append(cell))
    cells = [replace(ONE, per_rank_batch=batch) for batch in range(1, 101)]
    scaling = measure(SweepRecord(cells, 1, "x"), [run(ONE, 0, [rank(0, end_ms=1000)])])
    assert len(compared) < 3 * len(cells) and {one.status for one in scaling.cells} == {"ok", "missing"}


def test_the_newest_sweep_is_none_that_record_wrote(tmp_path: Path) -> None:
    for i, options in enumerate(({}, {"profiler": None}, {"profiler": "nsys"})):
        folder = tmp_path / str(i)
        folder.mkdir()
        written = SweepRecord([ONE], 1, "x", created_utc_ns=i, options=options)
        (folder / "sweep.json").write_text(json.dumps(written.to_json()))
    assert run_directory.newest(tmp_path) == tmp_path / "1"
    shown = CliRunner().invoke(report.command, [str(tmp_path)])
    assert f"Scaling of {tmp_path / '1'}" in shown.output.replace("\n", "")


def test_more_than_100_percent_is_a_doubt() -> None:
    two = replace(ONE, ranks=2)
    found = sweep_of({ONE: [1000, 1001, 1002], two: [900, 901, 902]})
    assert "over-100-percent" in {doubt.code for doubt in found.doubts}


def test_unlike_machines_and_few_launches_are_doubts() -> None:
    runs = [
        run(ONE, 0, [rank(0, end_ms=1000)], machine={"host": "a"}),
        run(ONE, 1, [rank(0, end_ms=1000)], machine={"host": "b"}),
    ]
    found = {doubt.code for doubt in measure(SweepRecord([ONE], 2, "x"), runs).doubts}
    assert {"unlike-machines", "low-replication"} <= found


def test_a_faster_feed_that_was_measured_is_named_first() -> None:
    cells = {replace(ONE, ranks=n, feed=feed): (1000, 1010, 990) for n in (1, 2) for feed in ("prefetch", "device")}
    cells[replace(ONE, ranks=2, feed="prefetch")] = (1500, 1510, 1490)
    looks = sweep_of(cells).looks
    assert looks[0].code == "better-feed"
    assert "1.50 x" in looks[0].text and "--feed device" in looks[0].next


def test_no_feed_at_all_is_neither_advised_nor_compared_against() -> None:
    cells = {replace(ONE, feed="prefetch"): (1000, 1010, 990), replace(ONE, feed="resident"): (500, 510, 490)}
    assert all(look.code != "better-feed" for look in sweep_of(cells).looks)
    cells = {replace(ONE, feed="prefetch"): (500, 510, 490), replace(ONE, feed="resident"): (1000, 1010, 990)}
    assert all(look.code != "better-feed" for look in sweep_of(cells).looks)


def test_a_single_launch_gives_no_least_gain() -> None:
    slow, fast = replace(ONE, feed="prefetch"), replace(ONE, feed="device")
    way = replace(ONE, ranks=2, step="fit")
    for took, said in ((((1000,), (500,)), "2.00 x as fast (by a single launch)"),
                       (((1000, 1010), (500,)), "x as fast (by a single launch)"),
                       (((1000, 1010), (500, 510)), "x as fast (at least 1.96 x)")):  # fmt: skip
        cells = dict(zip((slow, fast), took, strict=True))
        assert said in next(look.text for look in sweep_of(cells).looks if look.code == "better-feed")
    cells = {replace(way, strategy=name): (ms,) for name, ms in (("horovod", 1000), ("sharded", 500))}
    assert "2.00 x as fast as horovod (by a single launch), and" in next(
        look.text for look in sweep_of(cells).looks if look.code == "better-strategy"
    )


def test_throughput_that_grows_to_the_largest_batch_is_told_to_go_on() -> None:
    # Every launch trains 640 samples a rank: twice the batch in as much time a sample is as fast.
    cells = {replace(ONE, per_rank_batch=batch): (ms, ms + 1, ms - 1) for batch, ms in ((256, 500), (64, 900))}
    (found,) = (look for look in sweep_of(cells).looks if look.code == "larger-batch")
    assert "with 256 per rank it is 1.80 x that with 64" in found.text and "256,512,1024" in found.next
    grown_up = cells | {replace(ONE, per_rank_batch=512): (500, 501, 499)}
    assert "larger-batch" not in {look.code for look in sweep_of(grown_up).looks}
    strong = {replace(cell, global_batch=512): took for cell, took in cells.items()}
    assert "larger-batch" not in {look.code for look in sweep_of(strong).looks}


def test_a_strategy_that_is_faster_and_trains_the_same_is_named_and_so_is_what_exchanging_costs() -> None:
    two = replace(ONE, ranks=2, step="fit")
    took = {"horovod": 1000, "sharded": 900, "independent": 800, "mirrored": 1200}
    cells = {replace(two, strategy=name): (ms, ms + 1, ms - 1) for name, ms in took.items()}
    found = {look.code: look for look in sweep_of(cells).looks}
    assert "strategy sharded is 1.11 x as fast" in found["better-strategy"].text
    assert "training is 1.25 x as fast" in found["exchange-cost"].text
    assert "train with --strategy sharded" in found["better-strategy"].next
    split = {replace(two, strategy="split"): (700, 701, 699)}  # faster than what exchanges nothing
    (full,) = (look for look in sweep_of(cells | split).looks if look.code == "better-strategy")
    assert f"measure --per-rank-batch {two.per_rank_batch},{2 * two.per_rank_batch}:" in full.next
    horovod = replace(two, strategy="horovod")
    other_step = {replace(cell, step="compiled") if cell == horovod else cell: ms for cell, ms in cells.items()}
    assert "exchange-cost" not in {look.code for look in sweep_of(other_step).looks}
    slower = cells | {horovod: (500, 501, 499)}
    assert not {"better-strategy", "exchange-cost"} & {look.code for look in sweep_of(slower).looks}


@pytest.mark.parametrize(
    ("jax_ms", "said"),
    [
        ((800, 801, 799), "1.25 x as fast under JAX as with sharded (at least 1.25 x)"),
        ((1250, 1251, 1249), "1.25 x as fast with sharded as under JAX (at least 1.25 x)"),
        ((900, 1100, 901), "as fast under JAX as with sharded, within the error of both (0.91 to 1.11 x)"),
        ((800,), None),  # one launch has no error
    ],
)
def test_another_backend_is_faster_only_beyond_the_error_of_both(jax_ms: tuple[int, ...], said: str | None) -> None:
    one, took = replace(ONE, step="fit"), {"horovod": 1100, "sharded": 1000, "independent": 100}
    cells: dict[Cell, tuple[int, ...]] = {}
    for ranks in (1, 2):  # of several ranks the most count, and a bound does not
        ours = {replace(one, ranks=ranks, strategy=name): (ms, ms + 1, ms - 1) for name, ms in took.items()}
        cells |= ours | {replace(one, ranks=ranks, strategy="keras-jax", feed="numpy", step="compiled"): jax_ms}
    found = [look for look in sweep_of(cells).looks if look.code == "under-jax"]
    assert [look.text.partition(" trains ")[2] for look in found] == ([said] if said else [])
    assert all("on 2 ranks" in look.text for look in found)
    assert "better-strategy" not in {look.code for look in sweep_of(cells).looks if "keras" in look.text}


@pytest.mark.parametrize("slow", [False, True])
def test_a_one_rank_cell_that_something_slowed_down_is_compared_with_none(slow: bool) -> None:
    one = replace(ONE, step="fit")
    ms = 136_000 if slow else 1_360
    cells = {one: (ms, ms + 1, ms - 1), replace(one, ranks=2): (1_500, 1_501, 1_499)}
    cells |= {replace(one, strategy="keras-jax", feed="numpy", step="compiled"): (1_000, 1_001, 999)}
    found = sweep_of(cells)
    assert ("over-100-percent" in {doubt.code for doubt in found.doubts}) == slow
    assert [look.text.partition(" trains ")[2][:11] for look in found.looks if look.code == "under-jax"] == (
        [] if slow else ["1.36 x as f"]
    )


def test_a_row_of_another_backend_has_its_ratio_and_says_what_is_not_comparable() -> None:
    horovod, independent = ONE, replace(ONE, strategy="independent")
    torch = replace(ONE, strategy="keras-torch", step="fit", feed="numpy")
    rows = {row.cell: row for row in sweep_of({horovod: (500,), independent: (500,), torch: (1000,)}).cells}
    assert rows[torch].of_horovod == pytest.approx(0.5)
    assert rows[torch].limited_by is None and rows[horovod].limited_by is not None
    assert rows[torch].note and not rows[horovod].note and columns(rows[torch])["note"] == rows[torch].note


def test_what_limits_each_strategy_is_its_largest_share_by_hand() -> None:
    """Every launch trains as much and waits for a tenth of its step; independent takes 600 ms."""
    two = replace(ONE, ranks=2, step="fit")
    took = {"independent": 600, "horovod": 800, "mirrored": 630, "replicas": 500}
    cells = {replace(two, strategy=name): [float(ms)] for name, ms in took.items()}
    rows = {row.cell.strategy: (row.limited_by, row.limited_share) for row in sweep_of(cells).cells}
    assert rows["horovod"] == ("exchange", pytest.approx(1 - 600 / 800))
    assert rows["mirrored"] == ("input", pytest.approx(0.1))  # exchanging costs 30 of 630 ms, waiting 63
    assert rows["replicas"] == rows["independent"] == ("input", pytest.approx(0.1))
    del cells[replace(two, strategy="independent")]
    assert {row.limited_by for row in sweep_of(cells).cells} == {None}  # nobody knows what exchanging costs
    alone = sweep_of({two: [800.0]}).cells[0]
    assert alone.limited_by is None and alone.limited_share is None


def test_the_cell_that_loses_most_can_be_recorded_as_it_was_measured() -> None:
    from harness.jobs.grid import grid
    from harness.verbs import options, record

    two = replace(ONE, ranks=2, step="compiled", compression="fp16")
    found = sweep_of({replace(two, ranks=1): (1000, 1001, 1002), two: (1500, 1501, 1502)}).looks[0]
    assert found.code == "scaling-loss" and "67 % of 2 x one rank" in found.text
    words = shlex.split(found.next.partition("ringscope record ")[2])
    (cell,) = grid(options.choices(record.command.make_context("record", words).params), gpus=0)
    assert replace(cell, steps=two.steps, warmup=two.warmup, data=two.data, seed=two.seed) == two


def test_a_difference_inside_the_noise_is_not_named() -> None:
    fast, slow = replace(ONE, feed="device"), ONE
    assert sweep_of({slow: (1000, 1200, 800), fast: (950, 1100, 800)}).looks == [] or all(
        look.code != "better-feed" for look in sweep_of({slow: (1000, 1200, 800), fast: (950, 1100, 800)}).looks
    )


def test_the_tables_have_the_promised_columns_first_and_read_back() -> None:
    scaling = sweep_of({ONE: [1000, 1001, 1002]})
    text = csv_text(scaling.launches, LaunchRow)
    promised = (
        "model,ranks,per_rank_batch,feed,step,precision,strategy,launch,status,reason,samples_per_s_global,"
        "step_ms_p50,input_wait_share"
    )
    assert text.startswith(promised)
    read = list(csv.DictReader(io.StringIO(text)))
    assert [float(line["samples_per_s_global"]) for line in read] == [
        line.samples_per_s_global for line in scaling.launches
    ]
    assert float(read[0]["step_ms_p50"]) == 100.0
    assert float(read[0]["input_wait_share"]) == pytest.approx(0.1)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_report_fits_the_terminal(width: int) -> None:
    cells: dict[Cell, Sequence[float]] = {
        Cell(model, ranks, 256, feed=feed, step=step, precision="mixed_bfloat16"): (1000, 1010, 990)
        for model, ranks, feed, step in itertools.product(
            ("resnet50", "lstm_generic"), (1, 2, 4, 16), ("prefetch", "device"), ("fit", "compiled")
        )
    }
    out = io.StringIO()
    view.show(sweep_of(cells), "runs/20261121-101500-a-host-with-a-long-name", Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    bars = [line for line in lines if "█" in line]
    assert len(bars) == 32 and all("%" in line.split("█")[-1] for line in bars)


def test_the_columns_of_the_tables_stay_in_their_order() -> None:
    """Further ones may stand between them."""
    first = ["model", "ranks", "per_rank_batch", "feed", "step", "precision", "strategy"]
    last = ["input_dtype", "compression", "aggregate", "global_batch", "steps", "warmup"]
    of_a_launch = [
        *first,
        *("launch", "status", "reason", "samples_per_s_global", "step_ms_p50", "input_wait_share"),
        *("step_ms_p95", "window_ms", "clock_offset_ms_max"),
        *last,
        *("launcher", "profiled", "started_utc_ns", "seconds", "host", "cell"),
    ]
    of_a_cell = [
        *first,
        *("launches", "ok", "status", "reason", "samples_per_s_global", "samples_per_s_low", "samples_per_s_high"),
        *("interval", "coverage", "samples_per_s_sigma", "step_ms_p50", "input_wait_share", "speedup", "speedup_error"),
        *("efficiency", "efficiency_error", "efficiency_low", "efficiency_high", "efficiency_coverage"),
        *last,
        "cell",
    ]
    for kind, promised in ((LaunchRow, of_a_launch), (CellRow, of_a_cell)):
        assert [name for name in column_names(kind) if name in promised] == promised


@pytest.mark.parametrize(("cores", "doubted"), [(1, True), (2, False), (None, False)])
def test_more_ranks_than_cores_is_a_doubt(cores: int | None, doubted: bool) -> None:
    two = replace(ONE, ranks=2)
    machine = {"host": "a", "gpus": [{}], "cpu": {"usable": cores}}
    found = measure(SweepRecord([two], 1, "x"), [run(two, 0, [rank(k, end_ms=1000) for k in (0, 1)], machine=machine)])
    assert ("more-ranks-than-cores" in {doubt.code for doubt in found.doubts}) is doubted


def test_ranks_on_two_hosts_have_their_cores_each() -> None:
    two = replace(ONE, ranks=2)
    ranks = [rank(k, end_ms=1000, host=host) for k, host in enumerate("ab")]
    found = measure(SweepRecord([two], 1, "x"), [run(two, 0, ranks, machine={"cpu": {"usable": 1}})])
    assert "more-ranks-than-cores" not in {doubt.code for doubt in found.doubts}


def test_logs_are_read_only_where_something_ran() -> None:
    """A cell that is refused has its reason in its row, and no log."""
    ok, refused, failed = (Cell("mlp", 1, batch) for batch in (8, 16, 32))
    runs = [run(ok, 0, [rank(0, end_ms=10)]), run(refused, 0, [], status="unsupported", reason="not here")]
    look = measure(SweepRecord([ok, refused], 1, "x"), runs).looks[0]
    assert (look.code, look.text) == ("faults", "1 of 2 cells did not finish: 1 unsupported")
    assert look.next.startswith("the rows of these cells give the reasons")
    runs.append(run(failed, 0, [], status="failed", reason="it fell"))
    look = measure(SweepRecord([ok, refused, failed], 1, "x"), runs).looks[0]
    assert look.next.startswith(f"read the logs, for example in {failed.id}/")
