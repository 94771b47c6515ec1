"""Predictions against runs made by the same formula with known constants, and order statistics against a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from profiles.ground.errors import RingscopeError
from profiles.measuring import subject
from profiles.measuring.subject import Subject
from profiles.model import measures_json
from profiles.model.collectives import Bucket, OneStep
from profiles.predicting.step_time import check_alike, expected_largest, measured, predict
from profiles.runs.records import Cell, RunRecord
from profiles.verbs.predict import command
from tests.made.hand import gpu, measures

from ...recordings import DATA

ONE_NS, OTHER_NS, STEPS = 10_000_000, 300_000, 20


def _run(ranks: int, *, alpha: int, per_byte: int, sigma: int):  # type: ignore[no-untyped-def]
    """A run of the model: every GPU's step, its all-reduce's transfer (nothing hidden) and its waiting."""
    transfer = 2 * (ranks - 1) * alpha + 2 * (ranks - 1) * per_byte // ranks
    waiting = round(sigma * expected_largest(ranks)) if ranks > 1 else 0
    step = ONE_NS + (OTHER_NS + transfer + waiting if ranks > 1 else 0)
    each = gpu(
        steps=STEPS,
        step_ns=step,
        ledger={"compute": ONE_NS, "collective": transfer + waiting if ranks > 1 else 0},
        waiting=waiting if ranks > 1 else None,
        transfer=transfer if ranks > 1 else None,
    )
    return measures([each] * ranks), step


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_a_ring_that_is_all_bandwidth_is_predicted_exactly(ranks: int) -> None:
    one, two = (_run(n, alpha=0, per_byte=1_000_000, sigma=50_000)[0] for n in (1, 2))
    ((found,), basis) = predict(one, two, [ranks])
    assert basis.overlap == "share" and basis.straggling_ns == 0
    assert found.step_ns == pytest.approx(_run(ranks, alpha=0, per_byte=1_000_000, sigma=50_000)[1], abs=ranks + 5)
    assert found.efficiency == pytest.approx(ONE_NS / found.step_ns, rel=1e-6)


@pytest.mark.parametrize("alpha", [0, 1_000, 20_000])
def test_the_interval_holds_the_truth_whatever_part_is_latency(alpha: int) -> None:
    one, two = (_run(n, alpha=alpha, per_byte=200_000, sigma=0)[0] for n in (1, 2))
    for found in predict(one, two, [2, 4, 8])[0]:
        truth = _run(found.ranks, alpha=alpha, per_byte=200_000, sigma=0)[1]
        assert found.low_ns - 1 <= truth <= found.high_ns + 1


def test_one_late_step_widens_the_interval_as_it_moves_the_mean() -> None:
    late_ns = 9_000_000
    one, two = (_run(n, alpha=0, per_byte=200_000, sigma=0)[0] for n in (1, 2))
    for late in (one, two):
        (made, *_) = late.gpus
        made.steps.rows[3] = replace(made.steps.rows[3], end_ns=made.steps.rows[3].end_ns + late_ns)
        made.span_ns += late_ns
        ((found,), _) = predict(one, two, [4])
        lengths = np.array([row.end_ns - row.start_ns for row in made.steps.rows], float)
        assert found.low_ns <= found.step_ns <= found.high_ns
        if late is one:  # estimated to be faster on more ranks: only upwards is it known how far
            half = 2 * lengths.std(ddof=1) / np.sqrt(len(lengths))
            assert found.high_ns - found.step_ns == pytest.approx(half + 200_000 * 3 - 200_000 * 1.5, rel=1e-3)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_largest_of_n_normals_agrees_with_a_simulation(count: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(400_000, count)).max(axis=1)
    assert expected_largest(count) == pytest.approx(drawn.mean(), abs=0.005)


def test_hidden_all_reduces_come_out_as_they_grow_and_one_that_is_always_behind_does_not() -> None:
    """Against numbers by hand: a bucket of 1 ms ready 0.4 ms before compute ends; 1.5 times that is 1.1 ms late."""
    one, _ = _run(1, alpha=0, per_byte=0, sigma=0)
    made = gpu(
        steps=STEPS,
        step_ns=ONE_NS + 600_000 + 200_000,
        ledger={"compute": ONE_NS, "collective": 800_000},
        waiting=200_000,
        transfer=1_000_000,
    )
    bucket = Bucket(4_000_000, ready_ns=ONE_NS - 400_000, needed_ns=ONE_NS, transfer_ns=1_000_000)
    made.collectives.one_step = OneStep(3, ONE_NS + 5, 600_000, [bucket])
    made.collectives.varies_ns, made.collectives.behind_ns = 88_623, 0
    found, basis = predict(one, measures([made] * 2), [2, 4])
    assert (basis.overlap, basis.unhidden_ns, basis.varying_ns, basis.straggling_ns) == (
        "replayed",
        600_000,
        50_000,
        150_000,
    )
    grown = 50_000 * (expected_largest(4) / expected_largest(2))
    assert found[0].step_ns == ONE_NS + 800_000
    assert found[1].step_ns == pytest.approx(ONE_NS + 1_100_000 + 150_000 + grown, abs=2)
    assert found[1].high_ns == pytest.approx(ONE_NS + 2_600_000 + 150_000 + grown, abs=2)
    # A step whose replay does not give what was recorded is not replayed.
    made.collectives.one_step = OneStep(3, ONE_NS + 5, 100_000, [bucket])
    assert predict(one, measures([made] * 2), [4])[1].overlap == "share"


def test_anything_but_one_and_two_gpus_is_refused() -> None:
    one, _ = _run(1, alpha=0, per_byte=0, sigma=0)
    with pytest.raises(RingscopeError, match="1 GPU and one of 2"):
        predict(one, one, [4])


def test_a_larger_run_says_whether_the_interval_held(tmp_path: Path) -> None:
    for ranks, alpha in ((1, 0), (2, 0), (4, 0), (8, 900_000)):
        made, step = _run(ranks, alpha=alpha, per_byte=200_000, sigma=0)
        (tmp_path / f"{ranks}.json").write_text(measures_json.dumps(made))
        assert measured(made).step_ns == step
    one, two, four, eight = (str(tmp_path / f"{ranks}.json") for ranks in (1, 2, 4, 8))
    held = CliRunner().invoke(command, [one, two, "--ranks", "8", "--measured", four])
    assert held.exit_code == 0 and held.output.count(" ranks: ") == 2 and "inside the interval" in held.output
    late = CliRunner().invoke(command, [one, two, "--ranks", "8", "--measured", eight])
    assert "outside the interval" in late.output
    found = json.loads(CliRunner().invoke(command, [one, two, "--ranks", "4", "--json", "-"]).output)
    assert [each["ranks"] for each in found["predictions"]] == [4] and found["measured"] is None


def test_more_than_100_percent_is_told_to_be_a_doubt_and_no_triumph(tmp_path: Path) -> None:
    one, two = (_run(n, alpha=0, per_byte=200_000, sigma=0)[0] for n in (1, 2))
    held_back = measures([gpu(steps=STEPS, step_ns=2 * ONE_NS, ledger={"compute": ONE_NS, "idle_feed": ONE_NS})])
    said = {}
    for name, made in (("one", one), ("held", held_back), ("two", two)):
        (tmp_path / f"{name}.json").write_text(measures_json.dumps(made))
    doubts = {}
    for first in ("one", "held"):
        words = [str(tmp_path / f"{name}.json") for name in (first, "two")] + ["--ranks", "4"]
        said[first] = CliRunner().invoke(command, words).output
        doubts[first] = json.loads(CliRunner().invoke(command, [*words, "--json", "-"]).output)["doubts"]
    assert doubts["one"] == [] and [(one["code"], one["where"]) for one in doubts["held"]] == [
        ("over-100-percent", ["/predictions/0/efficiency"])
    ]
    assert "in doubt" not in said["one"] and "over-100-percent" not in said["one"]
    line, *_, doubt, remedy = said["held"].splitlines()
    assert "efficiency in doubt: 1" in line  # beside the number, not below all of them
    assert "more than 100 %" in doubt and "(over-100-percent)" in doubt and "run on 1 rank" in remedy


def test_recordings_of_unlike_work_predict_nothing() -> None:
    def of_cell(ranks: int, **cell: int | str) -> Subject:
        record = RunRecord(Cell("resnet50", ranks, 64, **cell), 0, "ok", "", 0, 1, [], "x", {})  # type: ignore[arg-type]
        return Subject(f"{ranks}", measures([gpu()] * ranks), None, record=record)

    check_alike(of_cell(1), of_cell(2))
    with pytest.raises(RingscopeError, match="feed prefetch and pinned"):
        check_alike(of_cell(1), of_cell(2, feed="pinned"))
    other = of_cell(2)
    assert other.measures is not None
    other.measures.gpus[0].name = "Tesla V100"
    with pytest.raises(RingscopeError, match="Tesla V100"):
        check_alike(of_cell(1), other)


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("vgg16-1gpu-device", "vgg16-2gpu-pinned", True),
        ("dense41m-1gpu-pinned-float32", "dense41m-2gpu-pinned", True),
        ("vgg16-1gpu-device", "resnet50-2gpu-in-stream", False),
        ("lstm-1gpu", "dense41m-2gpu-pinned", False),
        ("resnet50-1gpu-prefetch-float32", "resnet50-2gpu-prefetch", False),  # compiled, and not compiled
    ],
)
def test_recordings_without_records_are_of_unlike_work_if_their_kernels_are(
    first: str, second: str, alike: bool
) -> None:
    one = [str(DATA / f"{first}.rank0.sqlite.xz")]
    two = [str(DATA / f"{second}.rank{rank}.sqlite.xz") for rank in range(2)]
    subjects = [subject.load([Path(path) for path in paths]) for paths in (one, two)]
    if alike:
        check_alike(*subjects)
        return
    with pytest.raises(RingscopeError, match="kernels of the same names take only"):
        check_alike(*subjects)
