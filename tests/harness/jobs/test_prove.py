"""A finding's change made to its cell, and predicted held against measured."""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.jobs.prove import BY_HAND, CHANGES, outcome, report, trial
from harness.training.combinations import check
from harness.training.models import MODELS
from harness.verbs.bench import command
from profiles import verdicts
from profiles.ground.errors import RingscopeError
from profiles.ground.stats import spread
from profiles.model import measures_json as view
from profiles.runs.records import Cell, RunRecord, SweepRecord
from profiles.runs.strategies import STRATEGIES, TENSORFLOW
from profiles.scaling.measure import Scaling
from profiles.verdicts import Context, find
from tests.made.hand import gpu, measures

MS = 1_000_000
DATA = Path(__file__).parents[2] / "data"
CELL = Cell(model="resnet50", ranks=1, per_rank_batch=64)


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    """A recorded launch: measures with two findings, and its record."""
    found = measures([gpu(ledger={"idle_launch": MS, "collective": 2 * MS})])
    found.findings = find(found, Context(cell=CELL))
    (tmp_path / "measures.json").write_text(view.dumps(found))
    record = RunRecord(CELL, 0, "ok", "", 0, 1, [], "horovodrun", {})
    (tmp_path / "record.json").write_text(json.dumps(record.to_json()))
    return tmp_path


def test_the_cell_is_run_again_with_the_findings_change(launch: Path) -> None:
    tried = trial("launch-bound", launch, gpus=1)
    assert tried.before == CELL and tried.after.step == "compiled"
    assert trial("all-reduce-exposed", launch, gpus=1).after.compression == "fp16"


def test_predicted_stands_beside_measured(launch: Path, tmp_path: Path) -> None:
    tried = trial("launch-bound", launch, gpus=1)
    spreads = {tried.before.id: spread([90.0, 100.0, 110.0]), tried.after.id: spread([104.0, 105.0, 106.0])}
    scaling = Scaling([], [], [], [], spreads)
    measured = outcome(tried, scaling)
    assert measured is not None and measured.value == pytest.approx(1.05)
    words = report(tried, scaling, tmp_path)
    assert "at most +11.1 %" in words and "measured +5.0 %" in words
    assert json.loads((tmp_path / "applied.json").read_text())["predicted_at_most_gain"] == pytest.approx(1 / 9)


def test_a_finding_that_is_not_there_is_named_with_those_that_are(launch: Path) -> None:
    with pytest.raises(RingscopeError, match="its findings are all-reduce-exposed, launch-bound"):
        trial("copies-pageable", launch, gpus=1)


def test_every_finding_is_a_setting_or_says_why_it_is_none() -> None:
    given = set()
    for source in Path(verdicts.__file__).parent.glob("*.py"):
        given |= set(re.findall(r'(?:finding|unpriced|_priced|_exposed_as)\(\s*"([a-z0-9-]+)"', source.read_text()))
    assert len(given) > 20
    assert given == set(CHANGES) | set(BY_HAND) and not set(CHANGES) & set(BY_HAND)


def test_every_change_of_a_cell_can_be_run() -> None:
    for code, changes in CHANGES.items():
        for model in MODELS:
            cell = replace(CELL, model=model, per_rank_batch=3, feed="host", precision="mixed_bfloat16")
            for gpus in (0, 1):
                for change in changes:
                    check(change(cell, gpus), gpus=gpus)  # raises what the worker would refuse
                changed = [change(cell, gpus) != cell for change in changes]
                assert any(changed) or code in ("generic-rnn-cell", "unfused-batch-norm")


@pytest.mark.parametrize("strategy", [name for name, one in STRATEGIES.items() if one.backend == TENSORFLOW])
def test_every_change_is_one_that_the_cells_strategy_can_make(strategy: str) -> None:
    for feed in ("host", "prefetch"):
        cell = replace(CELL, model="cnn_cifar", ranks=2, strategy=strategy, step="fit", feed=feed)
        for change in {change for changes in CHANGES.values() for change in changes}:
            check(change(cell, 2), gpus=2)  # raises what the worker would refuse


@pytest.mark.parametrize(
    ("code", "cell", "gpus", "setting", "value"),
    [
        ("not-compiled", CELL, 1, "step", "compiled"),
        ("launch-bound", replace(CELL, step="compiled"), 1, "per_rank_batch", 128),
        ("launch-bound", replace(CELL, model="gru"), 1, "step", "compiled"),
        ("tiny-batch", replace(CELL, global_batch=64), 1, "global_batch", 128),
        ("no-prefetch", replace(CELL, feed="host"), 1, "feed", "pinned"),
        ("no-prefetch", replace(CELL, feed="host"), 0, "feed", "prefetch"),
        ("copies-exposed-although-prefetched", replace(CELL, feed="pinned"), 1, "input_dtype", "uint8"),
        ("input-pipeline-slow", CELL, 1, "input_dtype", "uint8"),
        ("all-reduce-exposed", replace(CELL, compression="fp16"), 2, "aggregate", 2),
        ("generic-rnn-cell", replace(CELL, model="gru_generic", step="compiled"), 1, "model", "gru"),
        ("off-tensor-cores", replace(CELL, per_rank_batch=60), 1, "per_rank_batch", 64),
    ],
)
def test_the_change_is_the_first_that_the_cell_lacks(
    code: str, cell: Cell, gpus: int, setting: str, value: object, tmp_path: Path
) -> None:
    tried = trial(code, _unmeasured(tmp_path, cell), gpus=gpus)
    assert getattr(tried.after, setting) == value
    assert f"{setting} {getattr(cell, setting)} -> {value}" in tried.words()


@pytest.mark.parametrize(
    ("code", "cell", "words"),
    [
        ("small-copy-before-step", CELL, "take int64 labels"),
        ("straggler", CELL, "the cause is the machine"),
        ("copies-pageable", replace(CELL, feed="pinned"), "already"),
        ("no-such-thing", CELL, "there is no finding 'no-such-thing'"),
    ],
)
def test_what_is_no_setting_is_refused_in_a_line(code: str, cell: Cell, words: str, tmp_path: Path) -> None:
    with pytest.raises(RingscopeError, match=words):
        trial(code, _unmeasured(tmp_path, cell), gpus=1)


def test_what_to_do_by_hand_stands_beside_a_refusal(launch: Path) -> None:
    found = json.loads((launch / "measures.json").read_text())
    found["findings"][0]["code"] = "collectives-not-fused"
    (launch / "measures.json").write_text(json.dumps(found))
    with pytest.raises(RingscopeError, match="by hand: "):
        trial("collectives-not-fused", launch, gpus=1)


def test_a_launch_without_measures_is_tried_without_a_prediction(tmp_path: Path) -> None:
    """A training on the CPU leaves no GPU's timeline; its run directory may be named as well as its launch."""
    folder = tmp_path / CELL.id / "0"
    folder.mkdir(parents=True)
    _unmeasured(folder, CELL)
    (tmp_path / "sweep.json").write_text(json.dumps(SweepRecord([CELL], 1, "single", [], 0).to_json()))
    for path in (folder, tmp_path):
        tried = trial("float32-input", path, gpus=0, steps=7)
        assert tried.finding is None and tried.after.input_dtype == "uint8" and tried.after.steps == 7
    spreads = {tried.before.id: spread([90.0, 100.0, 110.0]), tried.after.id: spread([98.0, 101.0, 106.0])}
    assert "+1.0 %" in report(tried, Scaling([], [], [], [], spreads), tmp_path)
    assert json.loads((tmp_path / "applied.json").read_text())["finding"] is None


def test_the_command_says_what_it_would_run_and_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    arguments = ["--apply", "float32-input", "--of", str(_unmeasured(folder, CELL)), "--steps", "7", "--dry-run"]
    shown = CliRunner().invoke(command, arguments)
    assert shown.exit_code == 0 and shown.output.startswith("float32-input: input_dtype float32 -> uint8")
    assert "2 cells x 3 launches" in shown.output and list(tmp_path.iterdir()) == [folder]


def test_recordings_are_measured_anew(launch: Path) -> None:
    with lzma.open(DATA / "resnet50-2gpu-device.rank0.sqlite.xz") as packed:
        (launch / "rank0.sqlite").write_bytes(packed.read())
    tried = trial("not-compiled", launch, gpus=1)  # measures.json, of before, has no such finding
    assert tried.finding is not None and (tried.finding.at_most_gain or 0) > 1


def test_more_than_the_bound_is_said(launch: Path, tmp_path: Path) -> None:
    tried = trial("launch-bound", launch, gpus=1)
    spreads = {tried.before.id: spread([99.0, 100.0, 101.0]), tried.after.id: spread([198.0, 200.0, 202.0])}
    assert "more than the finding promised" in report(tried, Scaling([], [], [], [], spreads), tmp_path)


def _unmeasured(folder: Path, cell: Cell) -> Path:
    record = RunRecord(cell, 0, "ok", "", 0, 1, [], "horovodrun", {"gpus": []})
    (folder / "record.json").write_text(json.dumps(record.to_json()))
    return folder
