"""The search for the largest batch: real processes that hold real memory under a real limit."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import launch
from harness.jobs.run_directory import RunDirectory
from harness.machine import describe as machine
from harness.verbs import fits as verb
from tests.harness.running import run_python
from tests.harness.stand_in import SAMPLE_BYTES, STRAINED

STAND_IN = Path(__file__).parents[1] / "stand_in.py"
LIMIT_MB = 400


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ranks that train nothing, in the mode that is named."""
    found = machine.describe(libraries=False)
    monkeypatch.setattr(machine, "describe", lambda: found)
    monkeypatch.setattr("harness.jobs.sweep.check_training", lambda: None)
    monkeypatch.setattr("harness.machine.nvml.visible_gpus", list)
    monkeypatch.setenv("COLUMNS", "100")

    def begin(mode: str) -> None:
        def worker(cell_path: Path, out_dir: Path) -> list[str]:
            return [sys.executable, str(STAND_IN), mode, "--cell", str(cell_path), "--out", str(out_dir)]

        monkeypatch.setattr(launch, "worker", worker)

    return begin


def fits(out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and what `fits.json` says."""
    code = verb.command.main([*words, "--out", str(out)], standalone_mode=False)
    return code, json.loads((out / "fits.json").read_text())


def search(out: Path, *words: str, limit_mb: int = LIMIT_MB) -> tuple[int, dict[str, Any]]:
    small = ["--model", "mlp", "--per-rank-batch", "8", "--steps", "2", "--memory-limit-mb", str(limit_mb)]
    return fits(out, *small, *words)


@pytest.mark.exhaustive
def test_the_largest_batch_is_found_launched_twice_and_as_two_small_runs_predicted(
    stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("allocates")
    kept: list[RunDirectory] = []  # as a thread that has not ended yet keeps one
    new = RunDirectory.__init__
    monkeypatch.setattr(RunDirectory, "__init__", lambda one, *given: (kept.append(one), new(one, *given))[1])
    code, found = search(tmp_path / "out")
    assert code == 0 and found["done"]
    tries = {one["batch"]: one["memory_bytes"] for one in found["tries"]}
    # What a process holds beside its batch is the same in all of them, to some pages.
    beside = [peak - batch * SAMPLE_BYTES for batch, peak in tries.items() if peak is not None]
    assert max(beside) - min(beside) < 8 << 20
    expected = ((LIMIT_MB << 20) - min(beside)) / SAMPLE_BYTES
    assert 0.96 * expected - 2 <= found["largest_batch"] <= expected + 2
    assert found["smallest_batch_that_does_not_fit"] >= expected - 8
    assert sum(one["batch"] == found["largest_batch"] for one in found["tries"]) == 2
    (two,) = (one for one in found["predictions"] if one["of"] == "two runs")
    assert two["batches"] == sorted(tries)[:2]
    assert two["per_sample_bytes"] == pytest.approx(SAMPLE_BYTES, rel=0.3)  # 8 samples apart, to some pages
    said = capsys.readouterr().out
    assert f"{found['largest_batch']} samples" in said and "419 MB" in said
    assert "smaller-batch: --per-rank-batch" in said

    # A search that lost its last launches goes on, to the same answer.
    for record in sorted((tmp_path / "out").glob("*/*/record.json"), key=lambda path: path.stat().st_mtime_ns)[-2:]:
        shutil.rmtree(record.parent)
    code, again = fits(tmp_path / "out", "--resume")
    assert (code, again["largest_batch"]) == (0, found["largest_batch"])
    assert [one["batch"] for one in again["tries"]] == [one["batch"] for one in found["tries"]]

    # Its runs also tell without a search.
    capsys.readouterr()
    words = ["--of", str(tmp_path / "out"), "--memory-limit-mb", "800", "--json", "-"]
    assert verb.command.main(words, standalone_mode=False) == 0
    (told,) = json.loads(capsys.readouterr().out)["expected"]
    assert told["capacity_bytes"] == 800 << 20
    assert [one["batch"] for one in told["tries"]] == sorted(batch for batch, peak in tries.items() if peak)
    more = (400 << 20) / told["predictions"][0]["per_sample_bytes"]
    assert told["predictions"][0]["largest_batch"] == pytest.approx(two["largest_batch"] + more, abs=2)


@pytest.mark.exhaustive
def test_a_rank_of_two_takes_the_batch_that_one_alone_takes(stand_in: Any, tmp_path: Path) -> None:
    """Not half of it: the limit is each rank's (keras#13110, #9643)."""
    stand_in("allocates")
    found = [search(tmp_path / str(ranks), "--ranks", str(ranks), "--within", "2") for ranks in (1, 2)]
    assert [code for code, _ in found] == [0, 0]
    one, two = (each["largest_batch"] for _, each in found)
    assert two == pytest.approx(one, rel=0.05)


def test_where_nothing_fits_it_is_said_and_the_code_is_1(
    stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("allocates")
    code, found = search(tmp_path / "out", limit_mb=10)
    assert (code, found["largest_batch"], found["smallest_batch_that_does_not_fit"]) == (1, None, 1)
    assert "10.5 MB" in capsys.readouterr().out


def test_where_all_fits_the_most_is_the_answer_and_its_runs_predict_another_limits(
    stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("allocates")
    code, found = search(tmp_path / "out", "--up-to", "20")
    assert (code, found["largest_batch"], found["all_fit"], found["remedies"]) == (0, 20, True, [])
    capsys.readouterr()
    words = ["--of", str(tmp_path / "out"), "--memory-limit-mb", "800", "--json", "-"]
    assert verb.command.main(words, standalone_mode=False) == 0
    (told,) = json.loads(capsys.readouterr().out)["expected"]
    took = {one["batch"]: one["memory_bytes"] for one in told["tries"]}
    assert list(took) == sorted({one["batch"] for one in found["tries"]}) and told["capacity_bytes"] == 800 << 20
    (two,) = (one for one in told["predictions"] if one["of"] == "two runs")
    less, more = two["batches"]
    assert [less, more] == list(took)[:2]
    beside = (told["capacity_bytes"] - took[less]) * (more - less) // (took[more] - took[less])
    assert two["largest_batch"] == less + beside


def test_a_launch_that_ends_otherwise_stops_the_search(
    stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("crash")
    code, found = search(tmp_path / "out", "--up-to", "20")
    assert (code, found["largest_batch"], found["done"]) == (1, None, False)
    assert found["stopped"].startswith("8 per rank failed: ") and "ValueError" in found["stopped"]
    assert "ValueError" in capsys.readouterr().out

    # Once the cause is mended the launch is repeated, and the search goes on.
    stand_in("allocates")
    code, found = fits(tmp_path / "out", "--resume")
    assert (code, found["stopped"], found["largest_batch"]) == (0, None, 20)


@pytest.mark.exhaustive
def test_a_launch_that_fails_before_the_end_of_memory_ends_the_search_below_it(
    stand_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in("strained")
    code, found = search(tmp_path / "out", "--within", "10")
    assert (code, found["done"], found["stopped"]) == (0, True, None)
    assert 0.9 * STRAINED - 2 <= found["largest_batch"] < STRAINED
    failures = [one for one in found["tries"] if "failure" in one]
    assert failures and all("Failed to call DoRnnBackward" in one["failure"] for one in failures)
    assert [one["code"] for one in found["doubts"]] == ["fits-by-failure"]
    said = capsys.readouterr().out
    assert "2  failed" in said and "Failed to call DoRnnBackward" in said

    # What runs led to expect is told of what ran alone.
    words = ["--of", str(tmp_path / "out"), "--memory-limit-mb", "800", "--json", "-"]
    assert verb.command.main(words, standalone_mode=False) == 0
    (told,) = json.loads(capsys.readouterr().out)["expected"]
    assert all(one["batch"] < STRAINED for one in told["tries"])


@pytest.mark.train
@pytest.mark.exhaustive
def test_a_model_that_trains_on_the_cpu_runs_out_of_a_set_limit_where_two_small_runs_say(tmp_path: Path) -> None:
    pytest.importorskip("horovod.tensorflow")
    words = ["--model", "cnn_cifar", "--memory-limit-mb", "1300", "--within", "10", "--per-rank-batch", "64"]
    done = run_python("-m", "harness", "fits", *words, "--out", str(tmp_path / "out"), timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "fits.json").read_text())
    largest, failing = found["largest_batch"], found["smallest_batch_that_does_not_fit"]
    assert largest < failing <= largest * 1.11 + 1
    # A process's peak differs from launch to launch by some 40 MB, and two small runs by some 100: what they lead to
    # expect is their line, and of the answer the order of magnitude.
    took: dict[int, list[int]] = {}
    for each in found["tries"]:
        if each["fits"]:
            took.setdefault(each["batch"], []).append(each["memory_bytes"])
    small, next_small = sorted(took)[:2]
    (at_small,), (at_next,) = took[small], took[next_small]
    slope = (at_next - at_small) / (next_small - small)
    one, two = found["predictions"]
    assert two["per_sample_bytes"] == pytest.approx(slope, abs=1)
    assert two["largest_batch"] == int(((1300 << 20) - at_small) / slope + small)
    assert largest / 3 < two["largest_batch"] < 3 * largest
    assert one["largest_batch"] <= failing, "one run gives a lower bound"
    codes = {one["code"]: one["saves_bytes"] for one in found["remedies"]}
    assert {"smaller-batch", "aggregation", "mixed-precision", "recomputation", "split"} <= set(codes)
    # What a smaller batch is said to save is what was measured, from the smallest one to the largest that ever fitted.
    most = max(took)
    saved = [(peak - at_small) / (most - small) * (failing - largest) for peak in took[most]]
    assert min(saved) - 1 <= codes["smaller-batch"] <= max(saved) + 1
