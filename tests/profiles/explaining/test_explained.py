"""Why N ranks are not N times one: run directories with known times, and with real recordings."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from profiles.explaining import pairs
from profiles.explaining.explained import Explained, told
from profiles.measuring.subject import load
from profiles.model import measures_json
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import Cell, RunRecord, SweepRecord, read_runs
from profiles.scaling import run_directory
from profiles.scaling.measure import Scaling
from profiles.verbs.report import command
from profiles.views.terminal import sweep as view
from tests.figures import figures
from tests.recordings import DATA

US = 1_000
ONE = Cell("mlp", 1, 256)
TWO = replace(ONE, ranks=2)
ALONE = replace(TWO, strategy="independent")
# (step, wait) in µs of each launch
Times = dict[Cell, list[tuple[int, int]]]
# As measured: a small model at a third of two ranks, whose input wait is 15 % of the step on one and 7 % on two.
SMALL: Times = {ONE: [(1754, 270), (1760, 271), (1750, 269)], TWO: [(5353, 360), (5300, 350), (5400, 370)]}
WITHOUT: Times = {ALONE: [(2100, 300), (2060, 290)]}


def write(folder: Path, times: Times, *, launches: int = 3, device: str | None = None) -> Path:
    """A run directory whose launches of 40 steps took so long."""
    folder.mkdir(parents=True, exist_ok=True)
    record = SweepRecord(list(times), launches, "horovodrun", created_utc_ns=1)
    (folder / "sweep.json").write_text(json.dumps(record.to_json()))
    for cell, each in times.items():
        for launch, (step_us, wait_us) in enumerate(each):
            place = begin(folder, cell, launch)
            for rank in range(cell.ranks):
                steps, waits = [step_us * US] * 40, [wait_us * US] * 40
                whole = RankRecord(rank, cell.ranks, rank, "a", device, 0, sum(steps), 40 * 256, steps, waits)
                write_rank(place / f"rank{rank}.jsonl", whole)
    return folder


def begin(folder: Path, cell: Cell, launch: int, status: str = "ok", reason: str = "", **more: Any) -> Path:
    place = folder / cell.id / str(launch)
    place.mkdir(parents=True)
    run = RunRecord(cell, launch, status, reason, launch, launch + 9 * 10**9, ["x"], "horovodrun", {"cpu": {}}, **more)
    (place / "record.json").write_text(json.dumps(run.to_json()))
    return place


def read(folder: Path) -> tuple[Scaling, list[Explained]]:
    return told(run_directory.read(folder), read_runs(folder), folder)


def shown(folder: Path) -> str:
    scaling, found = read(folder)
    out = io.StringIO()
    view.show(scaling, str(folder), Console(file=out, width=100), found)
    return out.getvalue()


def test_the_exchange_is_named_for_a_small_model_and_faster_batches_are_not(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", SMALL)
    write(folder / "explain", WITHOUT, launches=2)
    scaling, (found,) = read(folder)
    # Of three launches the middle one, of two the faster: 5353 with and 2060 without the exchange, 1754 on one rank.
    assert (found.step_before_ns, found.step_after_ns) == (1754 * US, 5353 * US)
    assert {loss.cause: loss.ns for loss in found.losses} == {
        "exchange": (5353 - 360) * US - (2060 - 290) * US,
        "compute": (2060 - 290) * US - (1754 - 270) * US,
        "input_wait": 90 * US,
    }
    first = found.losses[0]
    assert (first.cause, first.low_ns, first.high_ns) == ("exchange", (4950 - 1800) * US, (5030 - 1770) * US)
    assert found.largest == "exchange" and found.finding is not None
    assert found.finding.code == "all-reduce-exposed"
    assert found.finding.at_most_gain == pytest.approx(5353 / (5353 - 3223) - 1)
    assert found.launches == {"one": 3, "many": 3, "without_exchange": 2}
    assert not [look for look in scaling.looks if look.code == "input-bound"]
    said = shown(folder)
    assert figures(said.partition("Scaling of")[0])[:4] == ["2", "5.353 ms", "3.599 ms", "+3.223 ms"]
    exchanged = next(line for line in said.splitlines() if "exchange of gradients" in line)
    assert figures(exchanged)[:2] == ["+3.223 ms", "89.6 %"] and "make batches faster" not in said


def test_without_explanation_the_hint_on_input_goes_by_what_more_ranks_add(tmp_path: Path) -> None:
    looks = {look.code for look in read(write(tmp_path / "a", SMALL))[0].looks}
    assert "input-bound" not in looks
    waiting = {ONE: [(1754, 270)] * 3, TWO: [(2100, 600)] * 3}
    (look,) = [look for look in read(write(tmp_path / "b", waiting))[0].looks if look.code == "input-bound"]
    assert "mlp on 2 ranks" in look.text
    assert read(tmp_path / "b")[1] == []  # no `explain/`: nothing is explained


@pytest.mark.parametrize(
    ("without", "code", "cause"),
    [((5300, 360), "cores-shared", "compute"), ((1754, 270), "all-reduce-exposed", "exchange")],
)
def test_the_finding_is_that_of_the_largest_loss(
    without: tuple[int, int], code: str, cause: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "run", SMALL)
    write(folder / "explain", {ALONE: [without]})
    (found,) = read(folder)[1]
    assert found.finding and (found.finding.code, found.largest, found.finding.owners) == (code, cause, [cause])


def test_waiting_for_input_that_grows_is_the_input_pipeline(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {ONE: [(1754, 270)] * 3, TWO: [(4754, 3170)] * 3})
    write(folder / "explain", {ALONE: [(4700, 3120)]})
    (found,) = read(folder)[1]
    assert found.finding and (found.finding.code, found.finding.cost_ns_per_step) == ("input-pipeline-slow", 2900 * US)


def test_no_finding_where_launches_differ_by_as_much(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {ONE: [(1000, 0)] * 3, TWO: [(1200, 0), (1210, 0), (1000, 0)]})
    write(folder / "explain", {ALONE: [(1010, 0)]})
    (found,) = read(folder)[1]
    assert found.losses[0].cause == "exchange" and found.losses[0].low_ns == -10 * US
    assert (found.largest, found.finding) == (None, None)
    assert "No loss is larger than both the difference between launches" in shown(folder)


def test_a_loss_of_less_than_3_percent_of_the_step_is_no_finding(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {ONE: [(1000, 0)] * 3, TWO: [(1029, 0)] * 3})
    write(folder / "explain", {ALONE: [(1000, 0)]})
    assert read(folder)[1][0].finding is None


def test_a_launch_that_failed_leaves_the_rest_unknown_with_its_reason(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", SMALL)
    write(folder / "explain", {})
    begin(folder / "explain", ALONE, 0, "oom", "rank 1: no memory")
    scaling, (found,) = read(folder)
    assert {loss.cause: loss.ns for loss in found.losses} == {
        "exchange": None,
        "compute": None,
        "unknown": (4993 - 1484) * US,
        "input_wait": 90 * US,
    }
    assert found.finding is None and found.method is None
    (doubt,) = [doubt for doubt in scaling.doubts if doubt.code == "not-explained"]
    assert "oom: rank 1: no memory" in doubt.text and "--explain" in doubt.next
    lines = " ".join(shown(folder).split()).partition("+3.509 ms")
    assert lines[1] and "n/a exchange of gradients, slower compute: " in lines[2] + lines[0]
    assert "oom: rank 1: no memory" in lines[2] + lines[0]


def test_what_is_to_be_run_again_names_the_directory(tmp_path: Path) -> None:
    folder = write(tmp_path / "two words", {ONE: [(1000, 0)], TWO: [(1500, 0)]})
    named = f"ringscope bench --resume --out '{folder}' --launches 5"
    for _ in range(2):  # without its explanation, and with it
        doubts = [doubt for doubt in read(folder)[0].doubts if doubt.code == "low-replication"]
        assert [named in doubt.next for doubt in doubts] == [True]
        write(folder / "explain", {ALONE: []})


def test_what_was_left_out_for_its_time_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", SMALL)
    write(folder / "explain", {ALONE: []})
    assert "it was left out to save time, or the sweep was stopped" in " ".join(shown(folder).split())


def test_ranks_that_exchange_nothing_need_no_further_launch(tmp_path: Path) -> None:
    one, two = (replace(cell, strategy="independent") for cell in (ONE, TWO))
    folder = write(tmp_path / "run", {one: [(1000, 0)] * 2, two: [(1500, 0)] * 2})
    write(folder / "explain", {})
    (found,) = read(folder)[1]
    assert {loss.cause: loss.ns for loss in found.losses} == {"compute": 500 * US}


def test_the_exchange_of_another_strategy_is_not_told(tmp_path: Path) -> None:
    one, two = (replace(cell, strategy="mirrored") for cell in (ONE, TWO))
    folder = write(tmp_path / "run", {one: [(1000, 0)] * 2, two: [(1500, 0)] * 2})
    write(folder / "explain", {})
    (found,) = read(folder)[1]
    assert found.method is None and "Horovod" in found.losses[-1].why


def test_training_until_an_accuracy_is_explained_by_plain_steps(tmp_path: Path) -> None:
    one, two = (replace(cell, until="accuracy=0.9", data="generated") for cell in (ONE, TWO))
    folder = write(tmp_path / "run", {one: [(1000, 0)], two: [(1500, 0)]})
    without = replace(two, strategy="independent", until="")
    write(folder / "explain", {without: [(1200, 0)]})
    assert pairs.exchanging_nothing(two) == without and pairs.short(two, 12).until == ""
    (found,) = read(folder)[1]
    assert {loss.cause: loss.ns for loss in found.losses} == {"exchange": 300 * US, "compute": 200 * US}


def test_the_fastest_settings_on_the_most_ranks_are_explained_and_resident_only_by_itself(tmp_path: Path) -> None:
    def times(feed: str, one: int, two: int) -> Times:
        return {replace(ONE, feed=feed): [(one, 0)], replace(TWO, feed=feed): [(two, 0)]}

    cells = times("host", 100, 300) | times("prefetch", 100, 200) | times("resident", 90, 100)
    cells |= {replace(ONE, ranks=4, feed="host"): [(500, 0)]}
    folder = write(tmp_path / "run", cells)
    (pair,) = pairs.pairs(run_directory.read(folder))
    assert (pair.many.ranks, pair.many.feed) == (4, "host")
    del cells[replace(ONE, ranks=4, feed="host")]
    (pair,) = pairs.pairs(run_directory.read(write(tmp_path / "two", cells)))
    assert (pair.one.feed, pair.many.feed) == ("prefetch", "prefetch")
    cells[replace(ONE, strategy="independent")], cells[replace(TWO, strategy="independent")] = [(90, 0)], [(90, 0)]
    (pair,) = pairs.pairs(run_directory.read(write(tmp_path / "none", cells)))
    assert (pair.many.feed, pair.many.strategy) == ("prefetch", "horovod")
    only = times("resident", 90, 100)
    assert pairs.pairs(run_directory.read(write(tmp_path / "three", only)))[0].many.feed == "resident"


def test_with_a_batch_over_all_ranks_a_rank_has_its_share_of_the_step_to_do(tmp_path: Path) -> None:
    one, two = Cell("mlp", 1, 256, global_batch=256), Cell("mlp", 2, 128, global_batch=256)
    folder = write(tmp_path / "run", {one: [(1000, 100)] * 3, two: [(700, 60)] * 3})
    write(folder / "explain", {replace(two, strategy="independent"): [(520, 50)]})
    (found,) = read(folder)[1]
    assert (found.step_before_ns, found.step_after_ns) == (500 * US, 700 * US)
    assert {loss.cause: loss.ns for loss in found.losses} == {
        "exchange": 170 * US,
        "compute": 20 * US,
        "input_wait": 10 * US,
    }


# ---- recordings: two real ones, of one H200 and of two


BEFORE = "dense41m-1gpu-pinned-float32.rank0.sqlite.xz"
AFTER = "dense41m-2gpu-pinned.rank*.sqlite.xz"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with timed launches and two recorded ones."""
    one, two = Cell("dense41m", 1, 1024, feed="pinned"), Cell("dense41m", 2, 1024, feed="pinned")
    folder = tmp_path_factory.mktemp("recorded") / "run"
    measured = {cell: load(sorted(DATA.glob(which))).measures for cell, which in ((one, BEFORE), (two, AFTER))}
    mean = {cell: _step_ns(measures) for cell, measures in measured.items()}
    write(folder, {one: [(round(mean[one] / US), 0)] * 3, two: [(round(mean[two] * 1.5 / US), 0)] * 3}, device="GPU-0")
    write(folder / "explain", {})
    for cell, measures in measured.items():
        place = begin(folder / "explain", replace(cell, steps=12), 0, profiled="nsys")
        assert measures is not None
        (place / "measures.json").write_text(measures_json.dumps(measures))
        for rank in range(cell.ranks):
            write_rank(
                place / f"rank{rank}.jsonl", RankRecord(rank, cell.ranks, rank, "a", "G", 0, 12, 1, [1] * 12, [0] * 12)
            )
    return folder


def _step_ns(measures: Any) -> float:
    """Of all measured steps, averaged over GPUs with as many steps each."""
    steps = [row.end_ns - row.start_ns for gpu in measures.gpus for row in gpu.steps.rows]
    return sum(steps) / len(steps)


def test_recordings_tell_the_losses_by_owner_and_their_finding(recorded: Path) -> None:
    scaling, (found,) = read(recorded)
    of = {loss.cause: loss.ns for loss in found.losses if loss.ns is not None}
    assert sum(of.values()) == found.step_after_ns - found.step_before_ns
    before, after = (measures_json.load(path) for path in sorted(recorded.glob("explain/*/0/measures.json")))

    def per_step(measures: Any, *owners: str) -> float:
        each = [sum(row.ledger_ns[one] or 0 for row in gpu.steps.rows for one in owners) for gpu in measures.gpus]
        return sum(ns / len(gpu.steps.rows) for ns, gpu in zip(each, measures.gpus, strict=True)) / len(each)

    # The one GPU's recording does not tell which of its idle time is feed, so that of the two is not held against it.
    assert [(loss.cause, bool(loss.why)) for loss in found.losses if loss.ns is None] == [("idle_feed", True)]
    for owner, ns in of.items():
        owners = ("idle_unknown", "idle_feed") if owner == "idle_unknown" else (owner,)
        assert ns == pytest.approx(per_step(after, *owners) - per_step(before, *owners), abs=1)
    assert found.method == "recordings" and found.profiler == "nsys"
    assert (found.largest, found.finding) == ("idle_unknown", None)
    # The timed steps were made half as long again.
    (doubt,) = [doubt for doubt in scaling.doubts if doubt.code == "recorded-unlike-timed"]
    assert "dense41m on 2 ranks" in doubt.text
    assert found.recording and (recorded / found.recording / "measures.json").is_file()
    assert f"{found.profiler}; to see it: ringscope timeline" in shown(recorded)


BUSY = ("compute", "collective", "h2d", "d2h", "p2p", "d2d", "memset", "idle_turnaround")


@pytest.mark.parametrize(
    ("waits_us", "code", "change"),
    [((0, 0), "launch-bound", "--per-rank-batch 2048"), ((0, 3000), "input-pipeline-slow", "--input-dtype uint8")],
)
def test_where_recording_made_steps_longer_what_the_gpu_did_is_taken_from_it_and_idle_from_the_timed_steps(
    waits_us: tuple[int, int], code: str, change: str, recorded: Path, tmp_path: Path
) -> None:
    before, after = (measures_json.load(path) for path in sorted(recorded.glob("explain/*/0/measures.json")))
    (one_gpu,) = before.gpus
    per_step = [
        {
            owner: sum(sum(row.ledger_ns[owner] or 0 for row in gpu.steps.rows) / len(gpu.steps.rows) for gpu in gpus)
            / len(gpus)
            for owner in BUSY
        }
        for gpus in ([one_gpu], after.gpus)
    ]
    # Steps with 1 ms of idle time on one rank and 4 on two; the recorded ones have more.
    steps_us = [round(sum(ledger.values()) / US) + idle for ledger, idle in zip(per_step, (1000, 4000), strict=True)]
    assert _step_ns(before) > 1.1 * steps_us[0] * US
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    cells = [run.record.cell for run in read_runs(folder) if run.record.launch == 0]
    for cell, step_us, wait_us in zip(sorted(cells, key=lambda one: one.ranks), steps_us, waits_us, strict=True):
        shutil.rmtree(folder / cell.id)
        write(folder, {cell: [(step_us, wait_us)] * 3}, device="GPU-0")
    (folder / "sweep.json").write_text((recorded / "sweep.json").read_text())
    scaling, (found,) = read(folder)
    of = {loss.cause: loss.ns for loss in found.losses}
    assert (found.step_before_ns, found.step_after_ns) == tuple(step * US for step in steps_us)
    assert sum(ns or 0 for ns in of.values()) == found.step_after_ns - found.step_before_ns
    assert of.pop("idle") == pytest.approx(3000 * US, abs=2 * US)  # the steps are whole microseconds
    for owner in BUSY:
        assert of.pop(owner, 0) == pytest.approx(per_step[1][owner] - per_step[0][owner], abs=1)
    assert not of and found.largest == "idle" and found.finding is not None
    assert (found.finding.code, found.finding.cost_ns_per_step) == (code, found.losses[0].ns)
    assert change in found.finding.change
    doubts = [doubt.text for doubt in scaling.doubts if doubt.code == "recorded-unlike-timed"]
    assert doubts and all("idle is the rest of the timed step" in text for text in doubts)
    assert "idle: any cause" in shown(folder)


def test_recordings_whose_gpu_is_busy_for_longer_than_the_timed_step_stay_as_they_are(
    recorded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    for cell in {run.record.cell for run in read_runs(folder)}:
        shutil.rmtree(folder / cell.id)
        write(folder, {cell: [(10, 0)] * 3}, device="GPU-0")
    (folder / "sweep.json").write_text((recorded / "sweep.json").read_text())
    scaling, (found,) = read(folder)
    assert "idle" not in {loss.cause for loss in found.losses} and found.step_after_ns > 10 * US
    doubts = [doubt.text for doubt in scaling.doubts if doubt.code == "recorded-unlike-timed"]
    assert len(doubts) == 2 and all("the losses describe the recorded steps" in text for text in doubts)


def test_the_finding_is_the_first_that_takes_the_largest_loss_away(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    (path,) = folder.glob("explain/*n1*/0/measures.json")
    told_of_feed = measures_json.load(path)
    for row in told_of_feed.gpus[0].steps.rows:
        assert row.ledger_ns["idle_feed"] is None
        row.ledger_ns["idle_feed"] = 0
    # As if the one GPU had not waited for its batches: what it has alike is not behind the loss.
    told_of_feed.findings[:] = [each for each in told_of_feed.findings if each.code != "input-pipeline-slow"]
    path.write_text(measures_json.dumps(told_of_feed))
    (found,) = read(folder)[1]
    assert found.largest == "idle_feed" and found.finding is not None
    assert found.finding.code == "input-pipeline-slow" and "idle_feed" in found.finding.owners


def test_a_finding_that_one_rank_has_alike_is_not_behind_the_loss(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    one, two = (next(folder.glob(f"explain/*n{ranks}*/0/measures.json")) for ranks in (1, 2))
    before, after = measures_json.load(one), measures_json.load(two)
    for row in before.gpus[0].steps.rows:
        row.ledger_ns["idle_feed"] = 0
    (slow,) = [finding for finding in after.findings if finding.code == "input-pipeline-slow"]
    before.findings = [slow]
    one.write_text(measures_json.dumps(before))
    (found,) = read(folder)[1]
    assert found.largest == "idle_feed" and found.finding is None
    assert "No finding explains the largest loss, idle: feed." in shown(folder)


def test_a_recording_that_could_not_be_measured_is_a_doubt(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    (path,) = folder.glob("explain/*n2*/0/record.json")
    record = json.loads(path.read_text()) | {"status": "failed", "reason": "recorded, and not measured: no GPU work"}
    path.write_text(json.dumps(record))
    scaling, (found,) = read(folder)
    assert found.method is None and "not measured: no GPU work" in found.doubts[0].text
    assert sum(loss.ns or 0 for loss in found.losses) == found.step_after_ns - found.step_before_ns


@pytest.mark.parametrize("which", ["recorded", "launches"])
def test_page_markdown_and_json_lead_with_it(which: str, recorded: Path, tmp_path: Path) -> None:
    folder = recorded
    if which == "launches":
        folder = write(tmp_path / "run", SMALL)
        write(folder / "explain", WITHOUT)
    files = {name: tmp_path / f"report.{name}" for name in ("html", "markdown", "json")}
    words = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    result = CliRunner().invoke(command, [str(folder), *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document = json.loads(files["json"].read_text())
    assert list(document)[:2] == ["schema", "explained"]
    (one,) = document["explained"]
    assert sum(loss["ns"] or 0 for loss in one["losses"]) == one["step_after_ns"] - one["step_before_ns"]
    page, markdown = files["html"].read_text(), files["markdown"].read_text()
    title = f"{one['model']}: a step on 2 ranks takes"
    assert page.index('id="losses"') < page.index('id="scaling"')
    assert title in page and markdown.index(title) < markdown.index("## Cells")
    if which == "launches":
        for text in (page, markdown):
            assert "exchange of gradients" in text and "all-reduce-exposed" in text and "+3.223 ms" in text
