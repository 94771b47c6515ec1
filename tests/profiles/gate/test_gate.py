"""The gate on measures with known shares, on a real recording made worse, and on what cannot be judged."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from profiles.gate.baseline import baseline_of
from profiles.gate.baseline_file import BASELINE_SCHEMA, from_json, load, to_json
from profiles.gate.checks import BROKEN, HOLDS, UNJUDGED, Check
from profiles.gate.judgement import Judgement, judge
from profiles.gate.metrics import RECORDED, SWEPT, metrics
from profiles.ground.errors import RingscopeError
from profiles.measuring.subject import Subject
from profiles.model import measures_json
from profiles.runs.records import Cell, RunRecord
from profiles.scaling.measure import Scaling
from profiles.scaling.rows import CellRow
from profiles.verbs.gate import command
from profiles.views.terminal import gate as view
from tests.figures import figures
from tests.made.hand import gpu, measures
from tests.recordings import DATA

MS = 1_000_000


def _subject(*gpus: Any) -> Subject:
    return Subject("run", measures(gpus), None)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def _write(path: Path, *gpus: Any) -> str:
    path.write_text(measures_json.dumps(measures(gpus)))
    return str(path)


def test_a_metric_is_the_worst_gpus_and_says_which_and_where_to_look() -> None:
    subject = _subject(gpu(rank=0, ledger={"idle_feed": MS}), gpu(rank=1, ledger={"idle_feed": 2 * MS}))
    found = metrics(subject)["feed_gap_share"]
    assert found.value == pytest.approx(0.2)
    assert found.where.startswith("rank 1, GPU 1, look at step 0 (2.000 ms")


@pytest.mark.parametrize(("limit", "status"), [(0.05, BROKEN), (0.1, HOLDS), (0.2, HOLDS)])
def test_a_budget_holds_up_to_its_value(limit: float, status: str) -> None:
    judgement = judge(_subject(gpu(ledger={"h2d": MS})), at_most={"exposed_h2d_share": limit}, at_least={})
    assert judgement.status == status


@pytest.mark.parametrize(("limit", "status"), [(0.85, HOLDS), (0.9, HOLDS), (0.95, BROKEN)])
def test_a_budget_of_what_should_be_more_holds_down_to_its_value(limit: float, status: str) -> None:
    subject = _subject(gpu(ledger={"h2d": MS}))
    assert judge(subject, at_most={}, at_least={"compute_share": limit}).status == status
    # One value and no other may be asked for.
    both = judge(subject, at_most={"compute_share": 0.9}, at_least={"compute_share": 0.9})
    assert [check.status for check in both.checks] == [HOLDS, HOLDS]


def test_where_to_look_is_the_step_that_lost_most_and_of_what_should_be_more_the_one_with_least() -> None:
    one = gpu(ledger={"h2d": MS, "idle_feed": MS})
    lost = {3: {"h2d": 2.6}, 4: {"h2d": 2.5, "idle_feed": 2.5}, 5: {"idle_feed": 3}, 7: {"compute": 7}}
    for step, owners in lost.items():
        one.steps.rows[step].ledger_ns |= {owner: int(ms * MS) for owner, ms in owners.items()}
    found = metrics(_subject(one))
    steps = {"exposed_h2d_share": 3, "feed_gap_share": 5, "input_stall_share": 4, "compute_share": 7}
    assert {name: f"look at step {step} " in found[name].where for name, step in steps.items()} == dict.fromkeys(
        steps, True
    )


def test_an_unknown_value_cannot_be_judged_and_a_broken_one_comes_first() -> None:
    subject = _subject(gpu(ledger={"idle_feed": None, "h2d": MS}))
    unknown = judge(subject, at_most={"feed_gap_share": 0.5}, at_least={})
    assert (unknown.status, unknown.exit_code) == (UNJUDGED, 2)
    both = judge(subject, at_most={"feed_gap_share": 0.5, "exposed_h2d_share": 0.01}, at_least={})
    assert (both.status, both.exit_code) == (BROKEN, 1)
    assert judge(subject, at_most={}, at_least={"efficiency": 0.9}).status == UNJUDGED


def test_a_metric_that_does_not_exist_is_wrong_usage() -> None:
    with pytest.raises(RingscopeError, match="unknown metric 'feed_gaps'"):
        judge(_subject(gpu()), at_most={"feed_gaps": 1}, at_least={})


def test_a_run_holds_against_its_own_baseline_and_a_worse_one_does_not() -> None:
    good, worse = _subject(gpu(ledger={"idle_feed": MS})), _subject(gpu(ledger={"idle_feed": 2 * MS}))
    baseline = from_json(json.loads(json.dumps(to_json(baseline_of(good)))))
    assert judge(good, at_most={}, at_least={}, baseline=baseline).status == HOLDS
    judgement = judge(worse, at_most={}, at_least={}, baseline=baseline)
    broken = {check.metric for check in judgement.checks if check.status == BROKEN}
    assert broken == {"feed_gap_share", "input_stall_share", "compute_share"}


@pytest.mark.parametrize(
    ("metric", "owner", "good_ns", "last_ns"),
    [
        ("exposed_h2d_share", "h2d", 1_000_000, 1_100_000),  # 10 % of a step: 5 % of itself and half a point more
        ("feed_gap_share", "idle_feed", 2_000_000, 2_150_000),
        ("input_stall_share", "idle_feed", 2_000_000, 2_150_000),
        ("exposed_memset_share", "memset", 0, 50_000),
        ("compute_share", "compute", 8_000_000, 7_600_000),  # of what should be more, 5 % of itself less
    ],
)
def test_a_baseline_gives_way_by_a_twentieth_and_shares_of_losses_by_half_a_point_more(
    metric: str, owner: str, good_ns: int, last_ns: int
) -> None:
    def run(ns: int) -> Subject:
        return _subject(gpu(step_ns=10_000_000, ledger={owner: ns}))

    baseline = baseline_of(run(good_ns))
    worse = -1 if owner == "compute" else 1
    for ns, status in ((last_ns - 1_000 * worse, HOLDS), (last_ns + 1_000 * worse, BROKEN)):
        checks = judge(run(ns), at_most={}, at_least={}, baseline=baseline).checks
        assert [check.status for check in checks if check.metric == metric] == [status]


def test_a_baseline_gives_way_by_what_its_file_says() -> None:
    def run(ns: int) -> Subject:
        return _subject(gpu(step_ns=10_000_000, ledger={"h2d": ns}))

    baseline = replace(baseline_of(run(1_000_000)), relative=0.5, absolute_share=0.02)
    for ns, status in ((1_690_000, HOLDS), (1_710_000, BROKEN)):  # 10 % and half of it and two points
        checks = judge(run(ns), at_most={}, at_least={}, baseline=baseline).checks
        assert [check.status for check in checks if check.metric == "exposed_h2d_share"] == [status]


def test_unlike_machines_cannot_be_judged() -> None:
    other = gpu()
    other.name = "Tesla V100"
    judgement = judge(_subject(other), at_most={}, at_least={}, baseline=baseline_of(_subject(gpu())))
    message = judgement.checks[0].message
    assert judgement.exit_code == 2 and "ran on 1 x NVIDIA H200, this run on 1 x Tesla V100" in message


def _of_kernels(per_step: int, *names: str) -> Subject:
    return _subject(gpu(kernels={"per_step": per_step}, top=[(name, per_step, MS) for name in names]))


@pytest.mark.parametrize(
    ("now", "status"),
    [
        (_of_kernels(900, "gemm_a", "gemm_b"), HOLDS),  # more of the same
        (_of_kernels(101, "gemm_c", "gemm_d"), HOLDS),  # as many, renamed by a newer library
        (_of_kernels(900, "gemm_a", "conv", "bn"), UNJUDGED),
    ],
)
def test_recordings_of_other_work_that_no_cell_tells_are_told_apart_by_their_kernels(now: Subject, status: str) -> None:
    baseline = from_json(json.loads(json.dumps(to_json(baseline_of(_of_kernels(100, "gemm_a", "gemm_b"))))))
    judgement = judge(now, at_most={}, at_least={}, baseline=baseline)
    assert judgement.status == status
    assert judge(now, at_most={}, at_least={}, baseline=replace(baseline, kernels={})).status == HOLDS  # of before
    if status == UNJUDGED:
        (check,) = judgement.checks
        assert check.message.startswith("unlike recordings: ") and figures(check.message)[:2] == ["100", "900"]
        assert "\n" not in check.message and judgement.exit_code == 2


def test_a_recording_of_another_model_than_the_baselines_cannot_be_judged(tmp_path: Path) -> None:
    baseline = str(tmp_path / "baseline.json")
    assert (
        _run(str(DATA / "resnet50-1gpu-prefetch-float32.rank0.sqlite.xz"), "--write-baseline", baseline).exit_code == 0
    )
    other = _run(str(DATA / "lstm-1gpu.rank0.sqlite.xz"), "--baseline", baseline)
    assert other.exit_code == 2 and "unlike recordings: " in other.output and "1,246" in figures(other.output)


def test_junit_counts_what_is_broken_and_what_cannot_be_judged() -> None:
    subject = _subject(gpu(ledger={"idle_feed": None, "h2d": MS, "idle_sync": 0}))
    budgets = {"feed_gap_share": 0.5, "exposed_h2d_share": 0.01, "idle_sync_share": 0.1}
    suite = ElementTree.fromstring(view.junit(judge(subject, at_most=budgets, at_least={})))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True, False]


def test_names_of_any_characters_break_neither_xml_nor_a_table() -> None:
    odd = "".join(map(chr, (*range(0x20), 0x7F, 0x85, 0x202E, 0xD800, 0xFFFE, 0xFFFF))) + '<b>&"|`'
    checks = [Check(f"efficiency[{odd}]", "max", 1.0, 2.0, status, odd, odd) for status in (BROKEN, UNJUDGED, HOLDS)]
    judgement = Judgement(odd, checks)
    suite = ElementTree.fromstring(view.junit(judgement).encode())
    assert [case.get("name", "")[:11] for case in suite] == ["efficiency["] * 3
    rows = view.markdown(judgement).splitlines()
    assert "\x1b" not in "".join(rows) and len(rows) == 7 and all(row.startswith("|") for row in rows[2:])
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows[2:])


def test_the_command_ends_with_0_1_or_2_and_writes_its_reports(tmp_path: Path) -> None:
    good = _write(tmp_path / "good.json", gpu(ledger={"idle_feed": MS // 10}))
    worse = _write(tmp_path / "worse.json", gpu(ledger={"idle_feed": 2 * MS}))
    baseline = str(tmp_path / "baseline.json")
    assert _run(good, "--write-baseline", baseline).exit_code == 0
    assert Path(baseline).stat().st_size < 2000
    assert _run(good, "--baseline", baseline, "--max", "feed_gap_share=0.02").exit_code == 0
    broken = _run(
        worse, "--baseline", baseline, "--junit", str(tmp_path / "j.xml"), "--markdown", str(tmp_path / "m.md")
    )
    assert broken.exit_code == 1
    assert "feed_gap_share = 0.2" in broken.output and "look at step 0" in broken.output
    assert "feed_gap_share" in (tmp_path / "m.md").read_text() and "failure" in (tmp_path / "j.xml").read_text()
    assert _run(good, "--min", "efficiency=0.9").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to check"),
        (("--max", "feed_gap_share"), "write it as"),
        (("--max", "feed_gap_share=nan"), "write it as"),
        (("--max", "feed_gap_share=2"), "a share lies between 0 and 1; write 2 % as 0.02"),
        (("--min", "compute_share=-0.5"), "a share lies between 0 and 1"),
        (("--max", "compute_share=0.2", "--min", "compute_share=0.5"), "no run can satisfy both"),
        (("--baseline", "nowhere.json"), "no baseline"),
        (("--max", "compute_share=1", "--junit", "nowhere/gate.xml"), "nowhere/gate.xml: cannot be written"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    good = _write(tmp_path / "good.json", gpu())
    result = _run(good, *arguments)
    assert isinstance(result.exception, RingscopeError) and result.exception.exit_code == 2
    assert words in str(result.exception) and "\n" not in str(result.exception)


def test_no_baseline_is_written_beside_a_budget_that_is_refused(tmp_path: Path) -> None:
    good = _write(tmp_path / "good.json", gpu())
    result = _run(good, "--max", "no_such_share=0.5", "--write-baseline", str(tmp_path / "new.json"))
    assert isinstance(result.exception, RingscopeError) and not (tmp_path / "new.json").exists()


def test_the_help_names_every_metric() -> None:
    words = CliRunner().invoke(command, ["--help"]).output.split()
    assert set(RECORDED) | set(SWEPT) <= set(words)


def test_one_rank_has_no_efficiency_to_hold() -> None:
    rows = [CellRow(Cell("mlp", n, 64), 1, 1, "ok", "", efficiency=share) for n, share in ((1, 1.0), (2, 0.8))]
    alone, both = (
        metrics(Subject("", None, Scaling([], cells, [], [], {})))["efficiency"] for cells in (rows[:1], rows)
    )
    assert alone.value is None and "several ranks" in alone.where
    assert both.value == 0.8


def test_a_sweep_is_judged_by_its_worst_cell_and_by_each_by_its_id() -> None:
    cells = [Cell("mlp", 2, batch) for batch in (64, 128, 256)]
    rows = [CellRow(cell, 1, 1, "ok", "", efficiency=share) for cell, share in zip(cells, (0.8, 0.6, 0.9), strict=True)]
    found = metrics(Subject("", None, Scaling([], rows, [], [], {})))
    assert (found["efficiency"].value, found["efficiency"].where) == (0.6, f"cell {cells[1].id}")
    assert [found[f"efficiency[{cell.id}]"].value for cell in cells] == [0.8, 0.6, 0.9]


def test_a_baseline_of_other_work_judges_nothing() -> None:
    def run(**cell: Any) -> Subject:
        found = measures([gpu(ledger={"idle_launch": MS})])
        record = RunRecord(Cell("resnet50", 1, **cell), 0, "ok", "", 0, 1, [], "single", {})
        return Subject("", found, None, record=record)

    baseline = baseline_of(run(per_rank_batch=256, feed="pinned"))
    same = judge(run(per_rank_batch=256, feed="device"), at_most={}, at_least={}, baseline=baseline)
    assert same.exit_code == 0  # how the work is done may change: that is what is held
    other = judge(run(per_rank_batch=64, feed="pinned"), at_most={}, at_least={}, baseline=baseline)
    assert other.exit_code == 2 and "resnet50-n1-b64" in other.checks[0].message


@pytest.mark.parametrize("tolerance", ["relative", "absolute_share"])
def test_a_baseline_that_a_run_as_good_would_break_is_refused(tolerance: str) -> None:
    written = to_json(baseline_of(_subject(gpu(ledger={"h2d": MS}))))
    assert from_json(written | {tolerance: 0})
    with pytest.raises(RingscopeError, match="below 0"):
        from_json(written | {tolerance: -0.01})


@pytest.mark.parametrize("tolerance", ["relative", "absolute_share"])
def test_a_baseline_with_a_tolerance_in_per_cent_or_a_misspelt_one_is_refused(tolerance: str) -> None:
    """Either would let runs pass that the one who wrote it means to stop."""
    written = to_json(baseline_of(_subject(gpu(ledger={"h2d": MS}))))
    with pytest.raises(RingscopeError, match="write 5 % as 0.05"):
        from_json(written | {tolerance: 5})
    with pytest.raises(RingscopeError, match=f"no baseline has '{tolerance}s'"):
        from_json(written | {f"{tolerance}s": 0.01})


@pytest.mark.parametrize("values", [{"feed_gap_share": "much"}, ["feed_gap_share"], None])
def test_a_baseline_that_is_no_baseline_is_refused(values: Any) -> None:
    with pytest.raises(RingscopeError, match="an incomplete baseline"):
        from_json({"schema": BASELINE_SCHEMA, "metrics": values, "gpus": []})


RANGES: list[tuple[str, Any]] = [
    ("metrics", {"feed_gap_share": -0.1}),
    ("metrics", {"feed_gap_share": 1.01}),
    ("metrics", {"efficiency[resnet50-n2]": -1}),
    ("metrics", {"bus_gb_per_s[AllReduce]": -1e-9}),
    ("metrics", {"waiting_share": 2}),
    ("metrics", {"samples_per_s_global": True}),
    ("kernels", {"gemm": -0.5}),
    ("kernels", {"gemm": 1.5}),
    ("kernels_per_step", -1),
    ("ranks", -2),
]


@pytest.mark.parametrize(("key", "value"), RANGES)
def test_a_baseline_with_a_number_that_no_run_has_is_refused(key: str, value: Any) -> None:
    written = to_json(baseline_of(_subject(gpu(ledger={"h2d": MS}))))
    assert from_json(written)
    with pytest.raises(RingscopeError, match="an incomplete baseline"):
        from_json(written | {key: value})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"0"', "null", "[0]"])
def test_a_baseline_whose_metric_is_no_number_is_refused_by_its_file(number: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(f'{{"schema": "{BASELINE_SCHEMA}", "metrics": {{"feed_gap_share": {number}}}, "gpus": []}}')
    with pytest.raises(RingscopeError, match="baseline.json: (?:no|an incomplete)"):
        load(path)
