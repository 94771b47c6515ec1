"""Nothing is called fine over a large loss: what no finding names is told as such, on every recording there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse
from profiles.ground.errors import RingscopeError
from profiles.model import measures_json
from profiles.model.measures import OWNERS
from profiles.verdicts.not_judged import CALLED
from tests.made.build import Build
from tests.profiles.verdicts.test_people import ATEN, MS, US, findings, looped
from tests.recordings import DATA, SHARED, timeline
from tests.tiers import few

HOSTILE = ("hostile",)
RECORDINGS = sorted(
    path
    for folder in (DATA, SHARED)
    for path in folder.rglob("*")
    if path.is_file() and path.suffix != ".md" and not set(path.parts) & set(HOSTILE)
)


def unnamed(found: dict[str, Any]) -> list[tuple[int, int]]:
    """(GPU, ns of its window that no finding names) from the JSON alone, in whole owners: one that a finding of the
    GPU, or of all, takes anything from is named."""
    lost = []
    for place, gpu in enumerate(found["gpus"]):
        named = {
            owner
            for one in found["findings"]
            if place in (one["gpu"], *one["evidence"].get("gpus", ())) or one["gpu"] is None
            for owner in one["saved_ns"]
        }
        lost.append((place, sum(ns or 0 for owner, ns in gpu["ledger_ns"].items() if owner not in named | {"compute"})))
    return lost


@pytest.mark.parametrize("path", few(RECORDINGS, 5), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_tenth_of_the_time_that_no_finding_names_is_told_of(path: Path) -> None:
    try:
        measures = analyse([timeline(path)]).measures
    except RingscopeError:
        pytest.skip("no timeline of a GPU")
    found = json.loads(measures_json.dumps(measures, per_step=False))
    told = [one for one in found["findings"] if one["code"] == "loss-not-judged"]
    for place, ns in unnamed(found):
        span = found["gpus"][place]["span_ns"]
        mine = [one for one in told if one["gpu"] is None or place in (one["gpu"], *one["evidence"].get("gpus", ()))]
        if 10 * ns >= span:
            (line,) = mine
            assert line["change"] and line["evidence"]["lost_share"] >= 0.1
    for line in told:
        share = line["evidence"]["lost_share"]
        worst = found["gpus"][line["evidence"].get("gpu", line["gpu"])]
        assert sum(line["evidence"]["lost_ns_by_owner"].values()) == round(share * worst["span_ns"])
        assert 0.1 <= share <= 1 - worst["ledger_ns"]["compute"] / worst["span_ns"] + 1e-9


@pytest.mark.parametrize("each_ns", [21 * US, 31 * US])
def test_a_step_of_an_inference_has_the_same_advice_below_and_above_a_tenth_of_compute(each_ns: int) -> None:
    """7.7 and 10.9 % of it."""
    made = looped(*[ATEN] * 4, mark="ProfilerStep#{}", each_ns=each_ns)
    assert 0.07 < 4 * each_ns / (4 * each_ns + MS) < 0.12
    assert "python-in-the-loop" in findings(made)


def bursts(first_ms: int, *, every_ms: int) -> Build:
    """Twenty kernels of 10 us, a hundred ms apart from the end of a capture of 200 ms that begins with a copy."""
    made = Build()
    made.copy("h2d", 0, US, call=(-US, US))
    for number in range(20):
        start = (first_ms + number * every_ms) * MS
        made.kernel(start, start + 10 * US, f"kernel {number}", call=(start - 3 * US, start - 2 * US))
    made.memset(200 * MS, 200 * MS + US, call=(199 * MS, 199 * MS + US))
    return made


def test_a_start_is_judged_by_where_kernels_lie_and_not_by_how_much_they_compute() -> None:
    """Both compute for 0.1 % of the time."""
    all_along, at_the_end = findings(bursts(1, every_ms=10)), findings(bursts(179, every_ms=1))
    assert "python-in-the-loop" in all_along and "loss-not-judged" not in all_along
    assert set(at_the_end) == {"loss-not-judged"}
    assert "idle_launch" in at_the_end["loss-not-judged"].evidence["lost_ns_by_owner"]


def work_after_a_gap(gap_ms: int) -> Build:
    """A hundred kernels of 1 ms in a row, after a small one and that gap."""
    made = Build()
    for number in range(101):
        start = (number + gap_ms) * MS if number else 0
        made.kernel(start, start + (MS if number else US), f"kernel {number}", call=(start - 3 * US, start - 2 * US))
    return made


@pytest.mark.parametrize("gap_ms", [20, 100])
def test_one_gap_before_work_that_never_waits_is_no_fault_of_a_loop(gap_ms: int) -> None:
    """As of a profiler that starts with one small kernel, half a second before the requests come."""
    (told,) = findings(work_after_a_gap(gap_ms)).values()
    assert told.code == "loss-not-judged" and "one gap of" in told.text
    assert told.evidence["lost_ns_by_owner"]["idle_launch"] >= gap_ms * MS


def test_gaps_alike_are_a_loops() -> None:
    made = work_after_a_gap(20)
    for first in (40, 70):
        for row in [*made.rows["kernels"][first:], *made.rows["api"][first:]]:
            row["start_ns"] += 20 * MS
            row["end_ns"] += 20 * MS
    assert "loss-not-judged" not in findings(made)


def test_idle_time_at_the_end_of_a_step_is_not_for_want_of_calls() -> None:
    made = looped(ATEN, mark="ProfilerStep#{}", steps=1)
    (row,) = (row for row in made.rows["marks"])
    row["end_ns"] += 10 * MS
    told = findings(made)["loss-not-judged"]
    assert "no operation follows" in told.text and "calls" not in told.change


@pytest.mark.parametrize("kind", ["h2d", "d2h", "d2d", "p2p"])
@pytest.mark.parametrize("mark", ["step {}", "something {}"])
def test_exposed_copies_of_every_direction_are_told_with_steps_and_without(kind: str, mark: str) -> None:
    made = looped(ATEN, mark=mark, gap_ns=400 * US)
    for row in [*made.rows["kernels"]]:
        end = row["end_ns"]
        made.copy(kind, end, end + 300 * US, 1 << 24, call=(end - 50 * US, end - 49 * US), src_kind="pinned")
    named = {owner for one in findings(made).values() for owner in one.saved_ns}
    assert kind in named


def test_why_idle_time_has_no_cause_is_said_in_the_words_of_the_doubt() -> None:
    made = Build()
    for number in range(10):
        made.kernel(number * MS, number * MS + 100 * US, f"kernel {number}")  # without launch calls
    (doubt,) = (one for one in analyse([made.timeline()]).measures.doubts if one.code == "no-api-rows")
    told = findings(made)["loss-not-judged"]
    assert doubt.text in told.text and told.change == doubt.next


def test_every_owner_that_may_be_lost_has_words() -> None:
    assert set(OWNERS) - {"compute"} <= set(CALLED)
