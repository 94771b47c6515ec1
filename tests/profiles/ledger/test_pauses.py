"""An elastic training that paused: the pause has the GPU's idle time of it, and is neither a step nor a feed gap."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import profiles
from profiles.gpus.gather import gather
from profiles.ledger.account import account
from profiles.ledger.window import Window
from profiles.model import measures_json
from profiles.model.measures import Measures
from profiles.steps import find, pauses
from profiles.steps.found import FoundSteps
from tests.made.bruteforce import BruteForce
from tests.made.build import RECORDED, Build
from tests.made.random_timelines import builds, found_steps
from tests.profiles.ledger.test_ownership import assert_same

US, MS, S = 1_000, 1_000_000, 1_000_000_000
LOST = "rank 2 of 3 is lost"
STEP, COMPUTED = 10 * MS, 8 * MS  # each step: copies its batch for 1 ms, computes for 8, idles for 1
PAUSE_AT, PAUSE = 6 * STEP + 2 * MS, 3 * S + 7  # ring knew of it 2 ms after the sixth step's end
AFTER = PAUSE_AT + PAUSE + 40 * US  # the first step's mark, and so the next operation, comes a little later


def trained(why: str | None = LOST, pause: int = PAUSE) -> Build:
    """Six steps, a pause in which the weights are sent to the GPU again, six steps. why: None: no mark tells of it."""
    made = Build(rank=0, origin_utc_ns=0)
    after = PAUSE_AT + pause + 40 * US

    def step(number: int, now: int) -> None:
        made.mark(f"step {number}", now, now + 9 * MS)
        made.mark("wait input", now, now + 100 * US)
        made.copy("h2d", now + MS, now + 2 * MS, size=1 << 20, call=(now + 150 * US, now + 2 * MS))
        made.kernel(now + 2 * MS, now + 2 * MS + COMPUTED, "conv", call=(now + 200 * US, now + 210 * US))

    for number in range(6):
        step(number, number * STEP)
    if pause > S:
        made.copy("h2d", PAUSE_AT + S, PAUSE_AT + S + 5 * MS, size=1 << 24, call=(PAUSE_AT + S, PAUSE_AT + S + 5 * MS))
    if why is not None:
        made.mark(f"paused {pause} ns: {why}", PAUSE_AT + pause, PAUSE_AT + pause)
    for number in range(6):
        step(number, after + number * STEP)
    made.mark("step 6", after + 6 * STEP)
    return made


def measured(made: Build) -> Measures:
    found = profiles.analyse([made.timeline()]).measures
    for gpu in found.gpus:
        known = [ns for ns in gpu.ledger_ns.values() if ns is not None]
        assert sum(known) == gpu.span_ns
    return found


def test_the_ledger_has_the_pause_as_a_cause_of_its_own_to_the_nanosecond() -> None:
    (gpu,) = measured(trained()).gpus
    assert gpu.window == "steps"
    # The last step computes until the pause begins, and in it 5 ms are copied.
    assert gpu.ledger_ns["idle_pause"] == PAUSE - 5 * MS
    assert gpu.capture is not None
    assert gpu.capture["ledger_ns"]["idle_pause"] == PAUSE - 5 * MS
    (pause,) = gpu.pauses
    assert (pause.start_ns, pause.end_ns, pause.why) == (PAUSE_AT, PAUSE_AT + PAUSE, LOST)


def test_a_pause_is_no_step_and_no_feed_gap() -> None:
    (gpu,) = measured(trained()).gpus
    assert (gpu.steps.breaks, gpu.steps.count) == (1, 10)
    assert all(row.end_ns - row.start_ns == STEP for row in gpu.steps.rows)
    assert all(row.ledger_ns["idle_pause"] == 0 for row in gpu.steps.rows)
    assert gpu.feed_gaps is not None
    assert gpu.feed_gaps.max_ns < MS
    assert (gpu.ledger_ns["idle_feed"] or 0) < 12 * MS


def test_a_pause_shorter_than_a_few_steps_is_no_step_either() -> None:
    (gpu,) = measured(trained(pause=5 * MS)).gpus
    assert (gpu.steps.breaks, gpu.steps.count) == (1, 10)
    assert gpu.ledger_ns["idle_pause"] == 5 * MS
    assert all(row.end_ns - row.start_ns == STEP for row in gpu.steps.rows)


def test_without_the_mark_it_is_a_break_and_nobody_calls_it_a_pause() -> None:
    found = measured(trained(None))
    (gpu,) = found.gpus
    assert (gpu.ledger_ns["idle_pause"], gpu.pauses, gpu.steps.breaks) == (0, [], 1)
    assert "training-paused" not in [finding.code for finding in found.findings]


def test_a_finding_names_what_was_lost_and_how_long_the_training_paused() -> None:
    found = measured(trained())
    assert found.findings[0].code == "training-paused"
    first = found.findings[0]
    assert first.text == f"{LOST}: the training paused for 3.000 s"
    assert first.cost_ns_per_step == (PAUSE - 5 * MS) // 10
    assert first.evidence == {"pauses": 1, "longest_pause_ns": PAUSE, "idle_pause_ns": PAUSE - 5 * MS}
    assert first.owners == ["idle_pause"]


def test_a_short_pause_is_named_too() -> None:
    made = trained(pause=300 * US)
    (finding,) = [one for one in measured(made).findings if one.code == "training-paused"]
    assert finding.at_most_gain is not None
    assert 0 < finding.at_most_gain < 0.01
    assert "300.0 µs" in finding.text


def test_a_mark_of_another_domain_or_process_is_no_pause() -> None:
    for more in ({"domain": "theirs"}, {"pid": 99}):
        made = trained(None)
        made.mark(f"paused {PAUSE} ns: {LOST}", PAUSE_AT + PAUSE, PAUSE_AT + PAUSE, **more)
        assert measured(made).gpus[0].pauses == []


def test_a_recording_without_marks_cannot_tell_of_pauses() -> None:
    made = trained(None)
    (gpu,) = profiles.analyse([made.timeline(known=RECORDED - {"marks"})], window="capture").measures.gpus
    assert gpu.ledger_ns["idle_pause"] is None
    assert sum(ns for ns in gpu.ledger_ns.values() if ns is not None) == gpu.span_ns


def test_measures_of_a_version_that_knew_of_no_pauses_cannot_tell_of_them() -> None:
    data = json.loads(measures_json.dumps(measured(trained(None))))
    for gpu in data["gpus"]:
        del gpu["pauses"]
        for one in (gpu, gpu["capture"], *gpu["steps"]["rows"]):
            del one["ledger_ns"]["idle_pause"]
    read = measures_json.from_json(data)
    assert read.gpus[0].pauses == []
    assert {row.ledger_ns["idle_pause"] for row in read.gpus[0].steps.rows} == {None}
    assert measures_json.from_json(measures_json.to_json(read)) == read


@pytest.mark.exhaustive
@settings(max_examples=120, deadline=None)
@given(builds(), st.data())
def test_random_pauses_are_those_of_plain_loops(made: Build, data: st.DataObject) -> None:
    steps: FoundSteps = data.draw(found_steps(made))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(-10, 80_000) | st.integers(-5, 90))
        length = data.draw(st.integers(0, 60_000) | st.integers(0, 50))
        made.mark(f"paused {length} ns: {LOST}", at, at + 1, pid=data.draw(st.sampled_from((1, 2))))
    timeline = made.timeline()
    (gpu,) = gather([timeline]) or [None]
    if gpu is None or gpu.off_clock or not len(gpu.operations):
        return
    steps = replace(steps, pauses=pauses.pauses(gpu, [timeline], [0]))
    window = (int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max()))
    brute = BruteForce([timeline], [(0, 0)], steps, window)
    lasting = gpu.operations.lasting()
    assert_same(
        account([timeline], [0], gpu, steps, Window(*window)),
        brute,
        known=gpu.launches.told and bool(lasting.launched.any()),
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(-MS, 7 * STEP), st.integers(0, 3 * STEP))
def test_no_measured_step_meets_a_pause(at: int, length: int) -> None:
    made = trained(None, pause=2 * STEP)
    made.mark(f"paused {length} ns: {LOST}", at + length, at + length)
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    plain = find.find(gpu, [trained(None, pause=2 * STEP).timeline()])
    found = find.find(gpu, [timeline])
    kept = [
        (start, end)
        for start, end in zip(plain.start_ns.tolist(), plain.end_ns.tolist(), strict=True)
        if min(end, at + length) <= max(start, at)
    ]
    assert list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == kept
    assert found.breaks == plain.breaks + plain.count - len(kept)
