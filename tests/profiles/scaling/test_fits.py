"""What fits: the search against simulated memories of known answer, predictions and remedies worked out by hand."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell, Run, RunRecord, SweepRecord
from profiles.scaling import fits, search
from profiles.scaling.measure import measure
from profiles.scaling.remedies import Remedy, known, remedies
from profiles.scaling.search import Line, Plan, Try
from profiles.views.terminal import fits as view
from tests.figures import figures
from tests.profiles.scaling.test_scaling import rank, run

Memory = Callable[[int], int | None]  # of a batch; None: out of memory
GB = 10**9
CELL = Cell("mlp", 1, 8)


def searched(memory: Memory, plan: Plan, most_tries: int = 60) -> list[Try]:
    tries: list[Try] = []
    while (batch := search.next_batch(tries, plan)) is not None:
        assert plan.multiple_of <= batch <= max(plan.most, plan.multiple_of) and batch % plan.multiple_of == 0
        tries.append(Try(batch, memory(batch)))
        assert len(tries) <= most_tries, [one.batch for one in tries]
    return tries


def linear(fixed: int, per_sample: int, capacity: int) -> Memory:
    return lambda batch: taken if (taken := fixed + batch * per_sample) <= capacity else None


def test_a_search_ends_at_the_largest_batch_that_fits_whatever_it_was_told_of_memory() -> None:
    dice = random.Random(7)
    for _ in range(2000):
        truth = dice.choice([0, 1, 2, 3, dice.randint(1, 50), dice.randint(1, 100_000)])
        fixed, per_sample = dice.randint(0, GB), dice.randint(1000, 10**8)
        capacity = fixed + per_sample * truth + per_sample // 2
        told = dice.choice([None, capacity, capacity // 2, 2 * capacity, 10 * capacity])
        plan = Plan(
            start=dice.choice([1, 4, 64, 256]),
            most=dice.choice([1, 7, 1000, 65536]),
            within=dice.choice([0, 0.02]),
            multiple_of=dice.choice([1, 8]),
            capacity_bytes=told,
        )
        tries = searched(linear(fixed, per_sample, capacity), plan)
        low, high = search.bracket(tries)
        expected = min(truth // plan.multiple_of * plan.multiple_of, plan.lattice(plan.most))
        least = expected if not plan.within else expected - max(plan.multiple_of, int(expected * plan.within))
        assert least <= low <= expected and (high is None or truth < high), (truth, plan)
        assert not low or sum(one.batch == low for one in tries) == 2, "the answer is launched twice"


def test_a_good_prediction_makes_a_search_short() -> None:
    capacity = 80 * GB
    memory = linear(2 * GB, 7_654_321, capacity)
    tries = searched(memory, Plan(start=32, most=10**6, within=0.02, capacity_bytes=capacity))
    assert len(tries) <= 7
    assert len(searched(memory, Plan(start=32, most=10**6, within=0.02))) > 12


def test_nothing_fits() -> None:
    tries = searched(lambda batch: None, Plan(start=64, most=1000))
    assert search.bracket(tries) == (0, 1)


def test_everything_fits_to_the_most_that_may_be_tried() -> None:
    tries = searched(lambda batch: batch, Plan(start=64, most=1000, capacity_bytes=5000))
    assert search.bracket(tries) == (1000, None) and max(one.batch for one in tries) == 1000


@pytest.mark.parametrize("seed", range(200))
def test_where_memory_is_not_the_same_from_launch_to_launch_the_answer_has_fitted_twice(seed: int) -> None:
    """Between 400 and 500 a launch fits or not as chance has it."""
    dice = random.Random(seed)

    def memory(batch: int) -> int | None:
        if batch > 500 or (batch > 400 and dice.random() < 0.5):
            return None
        return batch * 1000 + dice.randint(-20_000, 20_000)

    plan = Plan(start=16, most=65536, within=0.02, capacity_bytes=dice.choice([None, 480_000]))
    tries = searched(memory, plan, most_tries=80)
    low, high = search.bracket(tries)
    assert [one.fits for one in tries if one.batch == low] == [True, True]
    assert 385 <= low <= 500 and high is not None
    assert not any(one.batch <= low and not one.fits for one in tries)


def test_a_batch_that_fits_above_one_that_does_not_is_a_doubt() -> None:
    assert search.is_monotone([Try(8, 1), Try(16, None)])
    assert not search.is_monotone([Try(8, 1), Try(16, None), Try(20, 5)])
    assert not search.is_monotone([Try(16, 1), Try(16, None)])
    assert search.bracket([Try(8, 1), Try(16, None), Try(20, 5)]) == (8, 16)


def test_a_search_goes_on_where_it_was() -> None:
    memory = linear(GB, 10**6, 4 * GB)
    plan = Plan(start=10, most=10**5, capacity_bytes=5 * GB)
    whole = searched(memory, plan)
    for length in range(len(whole)):
        assert search.next_batch(whole[:length], plan) == whole[length].batch


def test_what_is_left_becomes_less() -> None:
    tries = [Try(100, 1), Try(200, None)]
    assert search.left(tries, Plan(1, 1000, within=0)) == 7 + 1
    assert search.left([Try(1, None)], Plan(1, 1000)) == 0


def test_a_line_has_its_largest_batch() -> None:
    assert Line(10, 3).largest(20) == 3 and Line(10, 3).largest(5) == 0
    assert Line(10, 0).largest(20) is None


# Of runs


def launched(batch: int, peak: int | None, number: int = 0, **more: Any) -> Run:
    """An mlp of 1000 float32 weights, SGD with momentum, 4 layers; out of memory without a peak."""
    cell = replace(CELL, per_rank_batch=batch, **more)
    facts = {
        "host_memory_peak_bytes": peak,
        "memory_built_bytes": 600_000,
        "trainable_bytes": 4000,
        "optimizer_bytes": 4000,
        "parameters": 1000,
        "layers": 16,
    }
    if peak is None:
        return run(cell, number, [], status="oom", reason="held too much")
    return run(cell, number, [rank(0, end_ms=1000, extra=facts, device=None)])


def found(*runs: Run, **plan: Any) -> fits.Fits:
    whole = {"start": 8, "most": 1000, "within": 0.0, "multiple_of": 1, "capacity_bytes": 1_000_000} | plan
    cells = list(dict.fromkeys(one.record.cell for one in runs))
    return fits.of_runs(SweepRecord(cells, 1, "single", options={"fits": whole}), runs)


def test_predictions_of_one_run_and_of_two_are_those_of_their_lines() -> None:
    ended = found(launched(8, 648_000), launched(16, 688_000))
    one, two = ended.predictions
    # 600,000 + 8,000 stay; 40,000 for 8 samples: 5,000 each, and 392,000 are left.
    assert (one.line, one.largest) == (Line(608_000, 5000), 78)
    assert (two.line, two.largest) == (Line(608_000, 5000), 78)
    assert (ended.largest, ended.failing, ended.done, ended.device) == (16, None, False, "host")


def test_what_is_expected_of_runs_names_no_batch_as_if_it_were_the_answer() -> None:
    out = io.StringIO()
    cell = Cell("mlp", 2, 8, memory_limit_mb=900)
    view.show_expected([fits.Expected(cell, GB, (Try(8, GB // 2),), ())], Console(file=out, width=200))
    head, settings, took, _ = out.getvalue().splitlines()
    assert head == "mlp on 2 ranks: batches expected to fit in 1.00 GB of memory"
    assert "--ranks 2" in settings and "--memory-limit-mb 900" in settings and "--per-rank-batch" not in settings
    assert took == "  8 per rank took 500 MB"


def test_a_launch_that_ended_otherwise_stops_the_search() -> None:
    ended = found(launched(8, 648_000), run(replace(CELL, per_rank_batch=16), 0, [], status="hung", reason="no step"))
    assert ended.stopped == "16 per rank hung: no step" and not ended.done


def failed(batch: int, number: int = 0) -> Run:
    return run(replace(CELL, per_rank_batch=batch), number, [], status="failed", reason="rank 0: DoRnnBackward")


def test_a_launch_that_fails_where_memory_may_be_why_is_launched_again_and_does_not_fit_if_it_fails_twice() -> None:
    tries = [launched(8, 648_000), launched(16, 688_000), launched(90, None)]
    once = found(*tries, failed(70))
    assert (once.next_batch, once.stopped, once.largest, once.failing) == (70, "", 16, 90)
    fitted = found(*tries, failed(70), launched(70, 958_000, 1))
    assert (fitted.again, fitted.largest, fitted.failing, fitted.doubts) == (None, 70, 90, ())
    twice = found(*tries, failed(70), failed(70, 1))
    assert (twice.again, twice.stopped, twice.largest, twice.failing) == (None, "", 16, 70)
    (doubt,) = twice.doubts
    assert doubt.code == "fits-by-failure" and "70 samples" in doubt.text and "rank 0: DoRnnBackward" in doubt.text
    assert fits.to_json(twice)["tries"][-1] == {
        "batch": 70,
        "fits": False,
        "memory_bytes": None,
        "failure": "rank 0: DoRnnBackward",
    }
    # What sets the answer is memory again: the failure above it is no matter.
    assert found(*tries, failed(70), failed(70, 1), launched(60, None)).doubts == ()
    # One that was out of memory above says that memory is short there, though nothing has fitted yet.
    assert found(launched(90, None), failed(70)).next_batch == 70
    assert found(launched(90, None), failed(70), failed(70, 1)).next_batch == 35


def test_what_fails_with_no_word_of_memory_anywhere_needs_an_unknown_amount() -> None:
    ended = found(launched(8, 648_000), launched(16, 688_000), failed(70), failed(70, 1))
    assert (ended.failing, ended.needed_bytes, ended.remedies) == (70, None, ())
    assert ended.doubts[0].code == "fits-by-failure"


def test_where_the_first_launch_fails_the_search_stops_and_where_the_least_batch_does_it_says_why() -> None:
    assert found(failed(8)).stopped == "8 per rank failed: rank 0: DoRnnBackward"
    least = found(launched(2, None), failed(1), failed(1, 1))
    assert least.done and (least.largest, least.stopped) == (0, "1 per rank failed: rank 0: DoRnnBackward")


@pytest.mark.parametrize("seed", range(50))
def test_a_search_whose_launches_fail_near_the_end_ends_at_what_runs(seed: int) -> None:
    """Over `truth` a launch fails or is out of memory as chance has it; one in ten fails for another's fault."""
    dice = random.Random(seed)
    truth = dice.randint(20, 900)
    runs = [launched(8, 600_000)]
    for number in range(100):
        search_so_far = found(*runs, start=8, most=1000, within=0.02, capacity_bytes=dice.choice([None, 5_000_000]))
        if search_so_far.next_batch is None:
            break
        batch = search_so_far.next_batch
        if batch > truth:
            runs.append(failed(batch, number) if dice.random() < 0.6 else launched(batch, None, number))
        else:
            fine = dice.random() < 0.9 or any(one.record.status == "failed" for one in runs[-1:])
            runs.append(launched(batch, 560_000 + 5000 * batch, number) if fine else failed(batch, number))
    assert search_so_far.done and not search_so_far.stopped
    assert 0.98 * truth - 1 <= search_so_far.largest <= truth


def test_the_answer_is_done_when_it_has_fitted_twice() -> None:
    tries = [launched(78, 998_000), launched(79, None)]
    assert not found(*tries).done
    ended = found(*tries, launched(78, 998_000, 1))
    assert ended.done and (ended.largest, ended.failing) == (78, 79)
    assert found(*tries, launched(80, 999_000)).doubts[0].code == "fits-not-monotone"


def test_what_a_search_has_found_is_set_against_its_predictions_at_its_end_alone() -> None:
    def said(*runs: Run) -> str:
        out = io.StringIO()
        view.show(found(*runs), "runs/x", Console(file=out, width=200))
        return out.getvalue()

    tries = [launched(8, 648_000), launched(16, 688_000), launched(80, None)]
    stopped = said(*tries)
    assert (
        "at least 16 samples per rank fit" in stopped
        and "80 do not" in stopped
        and "compared with the batch found" not in stopped
    )
    whole = said(*tries, launched(78, 998_000), launched(78, 998_000, 1), launched(79, None))
    assert ": 78 samples per rank fit" in whole and whole.count("+0.0 % compared with the batch found") == 2


def test_a_search_that_was_stopped_before_its_first_launch_says_nothing_of_what_fits() -> None:
    out = io.StringIO()
    view.show(replace(found(launched(8, None)), tries=(), failing=None), "runs/x", Console(file=out, width=200))
    assert "mlp on one rank: no batch was tried yet" in out.getvalue() and "fits" not in out.getvalue()


def by_code(changes: list[Remedy]) -> dict[str, Remedy]:
    return {one.code: one for one in changes}


def test_remedies_save_what_their_definitions_say() -> None:
    runs = [launched(8, 648_000), launched(16, 688_000)]
    cell = replace(CELL, per_rank_batch=100)
    changes = by_code(remedies(cell, known(cell, runs), capacity_bytes=1_000_000, fits=78))
    assert {code: one.saves_bytes for code, one in changes.items()} == {
        "smaller-batch": 22 * 5000,
        "aggregation": 50 * 5000 - 4000,  # two halves, and their sums
        "mixed-precision": 100 * 5000 // 2 - 2 * 1000,
        "recomputation": 100 * 5000 // 2,  # 2 root(16) of 16
        "split": 50 * 5000 + (4000 + 4000 + 4000) // 2,
        # 4000 / 2 of the state less 4000 / 2 of the weights: nothing, so not named
    }
    assert {one.needs_bytes for one in changes.values()} == {
        1_108_000 - one.saves_bytes for one in changes.values() if one.saves_bytes
    }
    assert all(one.enough for one in changes.values())
    assert changes["smaller-batch"].option == "--per-rank-batch 78"
    assert changes["aggregation"].option == "--per-rank-batch 50 --aggregate 2"


def test_a_smaller_batch_that_was_run_fits_whatever_its_estimate_says() -> None:
    """Memory that grows less from 16 to 70 than from 8 to 16: the line is that of the batches farthest apart."""
    runs = [launched(8, 648_000), launched(16, 748_000), launched(70, 958_000)]
    cell = replace(CELL, per_rank_batch=80)
    about = known(cell, runs)
    assert about.line is not None and about.line.per_sample_bytes == 5000
    (smaller,) = (one for one in remedies(cell, about, capacity_bytes=900_000, fits=70) if one.code == "smaller-batch")
    assert (smaller.saves_bytes, smaller.needs_bytes, smaller.enough) == (50_000, 958_000, True)


def test_a_few_bytes_are_no_remedy_where_nobody_knows_by_how_much_a_batch_does_not_fit() -> None:
    """By the smaller ones 70 samples take 958 kB of 960, and they did not fit: 6 bytes less may be as little use."""
    runs, cell = [launched(8, 648_000), launched(16, 688_000)], replace(CELL, per_rank_batch=70)
    about = known(cell, runs)
    about = replace(about, optimizer_bytes=4012)  # half of it less half of 4000: 6
    assert about.line is not None and about.line.bytes_of(70) == 958_000
    changes = by_code(remedies(cell, about, capacity_bytes=960_000, fits=60))
    assert "sharded-optimizer" not in changes
    assert {one.needs_bytes for one in changes.values() if one.saves_bytes == 50_000} == {910_000}
    unknown = by_code(remedies(cell, replace(about, line=None), capacity_bytes=960_000, fits=60))
    assert "sharded-optimizer" not in unknown
    known_by_how_much = by_code(remedies(cell, about, capacity_bytes=957_995, fits=60))
    assert known_by_how_much["sharded-optimizer"].enough


def test_adam_on_four_ranks_shares_its_state() -> None:
    cell = replace(CELL, per_rank_batch=100, ranks=4, optimizer="adam")
    about = replace(known(cell, [launched(8, 648_000)]), optimizer_bytes=8000, line=Line(0, 1))
    sharded = by_code(remedies(cell, about, capacity_bytes=None))["sharded-optimizer"]
    assert (sharded.saves_bytes, sharded.enough) == (8000 * 3 // 4 - 4000 // 4, None)
    assert sharded.option == "--strategy sharded --ranks 4"


def test_what_no_run_tells_is_unknown_and_said_so() -> None:
    cell = replace(CELL, per_rank_batch=100)
    changes = remedies(cell, known(cell, []), capacity_bytes=1_000_000)
    assert len(changes) == 6 and all(one.saves_bytes is None and "unknown" in one.how for one in changes)


def test_a_cell_out_of_memory_is_looked_at_first_with_what_would_make_it_fit() -> None:
    runs = [launched(8, 648_000), launched(16, 688_000), launched(100, None, memory_limit_mb=1), launched(200, None)]
    scaling = measure(SweepRecord([one.record.cell for one in runs], 1, "x"), runs)
    assert [look.code for look in scaling.looks[:2]] == ["out-of-memory", "faults"]
    first = scaling.looks[0]
    assert first.text.startswith("mlp ") and figures(first.text)[:4] == ["100", "1 MiB", "1.11 MB", "1.05 MB"]
    remedy = first.next.partition("--per-rank-batch 50 --aggregate 2 ")[2].partition(")")[0]
    assert "aggregation" in remedy and figures(remedy) == ["246 kB"]
    command = first.next.partition("ringscope ")[2].split()
    assert command[:5] == ["fits", "--model", "mlp", "--ranks", "1"]
    assert command[-2:] == ["--memory-limit-mb", "1"]


@pytest.mark.parametrize(
    "plan",
    [[], "x", {}, {"start": "a"}, {"start": 8, "most": 0}, {"start": 8, "most": 9, "multiple_of": 0}, {"begin": 8}],
    ids=str,
)
def test_a_damaged_search_is_refused_in_a_line(plan: object, tmp_path: Path) -> None:
    whole = SweepRecord([Cell("mlp", 1, 8)], 1, "single", created_utc_ns=1, options={"fits": {"start": 8, "most": 64}})
    assert fits.planned(whole) == Plan(8, 64)
    for cells, options in (whole.cells, {"fits": plan}), ([], whole.options):
        (tmp_path / "sweep.json").write_text(json.dumps(replace(whole, cells=cells, options=options).to_json()))
        with pytest.raises(
            RingscopeError, match=r"sweep.json(: .*it has no cell| holds no complete search)"
        ) as refused:
            fits.read(tmp_path)
        assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_launch_that_is_damaged_says_so_and_not_that_it_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    folder.mkdir()
    record = RunRecord(Cell("mlp", 1, 8), 0, "ok", "", 0, 1, [], "single", {})
    (folder / "record.json").write_text(json.dumps(record.to_json()))
    (folder / "rank0.jsonl").write_text("{")
    with pytest.raises(RingscopeError, match="rank0.jsonl: not a whole rank record"):
        fits.expect(folder, 1 << 30)
