"""Idle time is divided over the user's own lines, to the nanosecond."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pytest

from profiles import analyse
from profiles.metrics import host_places
from profiles.model import marks, measures_json
from profiles.model.measures import OWNERS
from profiles.model.places import Places
from profiles.model.timeline import with_samples
from tests.made.build import Build, frame
from tests.profiles.ledger.test_peers import random_run as random_ranks
from tests.profiles.verdicts.test_people import MS, US
from tests.tiers import few

CAUSES = ("feed", "peers", "sync", "launch", "unknown")
MAKES = ("dataset", "loader", "generator", "py_function", "gc")
KINDS = (
    "callback",
    "saving",
    "eager",
    "dataset",
    "dataset-wait",
    "loader",
    "loader-wait",
    "map",
    "generator",
    "py_function",
    "gc",
)


def place(kind: str, name: str = "one", line: int = 1) -> str:
    return marks.place(kind, name, "train.py", line)


def loop(steps: int = 10, *, gap_us: int = 1000, busy_us: int = 1000) -> Build:
    """Steps whose first kernel is launched late, by thread 1."""
    made, now = Build(), MS
    for number in range(steps):
        made.mark(f"step {number}", now, now + (gap_us + busy_us) * US)
        now += gap_us * US
        made.kernel(now, now + busy_us * US, call=(now - 10 * US, now - 9 * US))
        now += busy_us * US
    return made


def told(made: Build) -> Places:
    found = analyse([made.timeline()]).measures.gpus[0].places
    assert found is not None
    return found


# ---- the same, a microsecond at a time


def random_run(seed: int) -> tuple[Build, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    draw = random.Random(seed)
    made, now = Build(), MS
    for number in range(6):
        begun = now
        if draw.random() < 0.4:
            made.mark("wait input", now, now + draw.randrange(1, 60) * US, tid=draw.choice((1, 2)))
        for _ in range(draw.randrange(1, 4)):
            now += draw.choice((0, 0, 20, 90)) * US
            lasts = draw.randrange(5, 40) * US
            call = now - draw.randrange(0, 30) * US
            made.kernel(now, now + lasts, draw.choice("abc"), call=(call, call + US))
            now += lasts
        if draw.random() < 0.5:
            made.api("cudaStreamSynchronize_v3020", now - 3 * US, now + draw.randrange(1, 9) * US)
        now += draw.randrange(0, 90) * US
        made.mark(f"step {number}", begun, now)
    end = now // US
    ranges, samples = [], []
    for _ in range(draw.randrange(0, 30)):
        start = draw.randrange(900, end)
        stop = start + draw.randrange(1, 120)
        kind = draw.choice(KINDS)
        one = (start, stop, draw.choice((1, 1, 2, 3)), kind, draw.choice(("x", "f")), draw.randrange(1, 3))
        if not any(other[0] == one[0] and other[1] == one[1] for other in ranges):  # which began last is open then
            ranges.append(one)
            made.mark(place(kind, one[4], one[5]), start * US, stop * US, tid=one[2])
    for tid in (1, 2):
        start = 900
        while start < end:
            start += draw.choice((0, 0, 30))
            stop = start + draw.randrange(1, 60)
            if draw.random() < 0.7:
                function, framework = draw.choice(("f", "g")), draw.random() < 0.3
                samples.append((start, stop, tid, function, framework))
                made.sample(start * US, stop * US, function, steps=tid == 1, tid=tid, framework=framework)
            start = stop
    return made, ranges, samples


def by_hand(
    at: int, cause: str, ranges: list[tuple[Any, ...]], samples: list[tuple[Any, ...]], waited: list[tuple[int, int]]
) -> Any:
    """Whose the microsecond is, as docs/reference/measures.md says."""

    def innermost(which: Any) -> Any:
        open_now = [one for one in ranges if one[0] <= at < one[1] and which(one)]
        one = max(open_now, key=lambda one: (one[0], -one[1]), default=None)
        return None if one is None else (one[4], one[5])

    def seen(which: Any) -> Any:
        found = [one for one in samples if one[0] <= at < one[1] and which(one)]
        return (found[0][3], None) if found else None

    named = {(one[4], 1) for one in ranges}  # functions that have ranges
    within = lambda one: any(own[0] <= one[0] < own[1] and steps(own) and not waits(own) for own in ranges)  # noqa: E731
    made = lambda one: any(own[0] <= one[0] < own[1] and not steps(own) and own[3] in MAKES for own in ranges)  # noqa: E731
    waits, steps = (lambda one: one[3].endswith("-wait")), (lambda one: one[2] == 1 and not stage(one))
    stage = lambda one: one[3] in ("map", "parallel-map")  # noqa: E731
    looks = [
        innermost(lambda one: one[3] == "gc"),
        innermost(lambda one: steps(one) and not waits(one)),
        seen(lambda one: steps(one) and not one[4] and not within(one)),
    ]
    if cause in ("feed", "sync", "launch"):
        looks.append(innermost(lambda one: not steps(one) and one[3] == "py_function"))
    if cause == "feed" or (cause == "launch" and any(start <= at < end for start, end in waited)):
        looks.append(innermost(lambda one: not steps(one) and one[3] in MAKES))
        looks.append(seen(lambda one: not steps(one) and not one[4] and (one[3], 1) not in named and not made(one)))
        looks += [innermost(waits), innermost(stage)]
    if cause != "peers":
        looks.append(seen(lambda one: steps(one) and one[4] and not within(one)))
    return next((one for one in looks if one is not None), None)


@pytest.mark.parametrize("seed", few(range(40)))
def test_random_idle_time_is_divided_as_it_is_a_microsecond_at_a_time(seed: int) -> None:
    made, ranges, samples = random_run(seed)
    marked = [one for one in made.rows["marks"] if one["name"] == "wait input"]
    waited = [(one["start_ns"] // US, one["end_ns"] // US) for one in marked]
    analysis = analyse([made.timeline()], window="capture")
    gpu, pieces = analysis.measures.gpus[0], analysis.gpus[0].ownership
    found = gpu.places
    if not ranges and not samples:
        assert found is None
        return
    expected: Counter[tuple[Any, str]] = Counter()
    for start, end, owner in zip(pieces.start_ns.tolist(), pieces.end_ns.tolist(), pieces.owner.tolist(), strict=True):
        name = OWNERS[owner]
        cause = name.removeprefix("idle_")
        if not name.startswith("idle_") or cause not in CAUSES:
            continue
        assert start % US == end % US == 0
        begun = by_hand(start // US, cause, ranges, samples, waited) if cause == "sync" else None
        for at in range(start // US, end // US):
            expected[begun or by_hand(at, cause, ranges, samples, waited), name] += US
    assert found is not None
    rows = {
        ((row.name, None if row.kind in ("python", "call") else row.line), owner): ns
        for row in found.rows
        for owner, ns in row.ns.items()
    }
    rows |= {(None, owner): ns for owner, ns in found.elsewhere_ns.items() if ns}
    assert rows == {key: ns for key, ns in expected.items() if ns}
    for cause in CAUSES:
        owner = f"idle_{cause}"
        whole = sum(row.ns.get(owner, 0) for row in found.rows) + found.elsewhere_ns[owner]
        assert whole == (gpu.ledger_ns[owner] or 0)


# ---- what each kind of evidence does


def test_idle_time_under_a_callback_is_the_callbacks_and_the_rest_is_elsewhere() -> None:
    made = loop()
    for number in range(10):
        made.mark(
            place("callback", "Norms.on_train_batch_end", 41), (1 + 2 * number) * MS, (1 + 2 * number) * MS + 700 * US
        )
    (row,) = told(made).rows
    assert (row.kind, row.name, row.at) == ("callback", "Norms.on_train_batch_end", "train.py:41")
    assert row.ns["idle_launch"] == 9 * 700 * US  # before the first kernel there is no window
    assert told(made).elsewhere_ns["idle_launch"] == 9 * 300 * US


def test_samples_name_the_line_that_is_seen_longest_and_those_in_a_framework_do_not_hide_them() -> None:
    made = loop()
    for number in range(10):
        start = (1 + 2 * number) * MS
        made.sample(start, start + 400 * US, "augment", 17, source="for image in batch:")
        made.sample(start + 400 * US, start + 500 * US, "augment", 18)
        made.sample(start + 500 * US, start + MS, "main", 60, via="torch.Module._call_impl", framework=True)
    first, second = told(made).rows
    assert (first.kind, first.at, first.ns) == ("python", "train.py:17", {"idle_launch": 9 * 500 * US})
    assert [(line.line, line.ns) for line in first.lines] == [(17, 9 * 400 * US), (18, 9 * 100 * US)]
    assert (second.kind, second.ns) == ("call", {"idle_launch": 9 * 500 * US})


def test_time_after_a_wait_belongs_to_where_the_host_waited() -> None:
    made = loop()
    for number in range(10):
        dry = (1 + 2 * number) * MS
        made.api("cudaStreamSynchronize_v3020", dry - 100 * US, dry + 5 * US)
        made.mark(place("callback"), dry - 200 * US, dry + 10 * US)
    (row,) = told(made).rows
    assert row.ns == {"idle_sync": 9 * MS}


def test_what_makes_batches_on_another_thread_has_time_without_input_alone() -> None:
    made = loop()
    for number in range(10):
        start = (1 + 2 * number) * MS
        made.mark(place("dataset", "Data.__getitem__", 9), start, start + 900 * US, tid=2)
        if number % 2:
            made.mark("wait input", start, start + 800 * US)
    (row,) = told(made).rows
    assert set(row.ns) == {"idle_feed"} and row.at == "train.py:9"


def test_a_recording_without_places_says_so() -> None:
    assert analyse([loop().timeline()]).measures.gpus[0].places is None


# ---- beside other ranks, as JSON, and without a GPU


@pytest.mark.parametrize("seed", few(range(12)))
def test_what_turns_out_to_wait_for_other_ranks_stays_in_its_place(seed: int) -> None:
    draw = random.Random(seed)
    ranks = []
    for timeline in random_ranks(seed):
        start, rows = int(timeline.kernels["start_ns"].min()), []
        while start < int(timeline.kernels["end_ns"].max()):
            end = start + draw.randrange(1, 9) * MS
            one = {"start_ns": start, "at_ns": start, "end_ns": end, "pid": timeline.kernels["pid"].iloc[0], "tid": 0}
            one |= {"steps": True, "file": "train.py", "line": 1, "function": draw.choice("fgh"), "via": ""}
            rows.append({**one, "framework": False, "source": ""})
            start = end + draw.choice((0, 3 * MS))
        ranks.append(with_samples(timeline, frame("samples", rows)))
    together = analyse(ranks, window="capture").measures.gpus
    moved = 0
    for timeline, gpu in zip(ranks, together, strict=True):
        (alone,) = analyse([timeline], window="capture").measures.gpus
        assert gpu.places is not None and alone.places is not None
        totals = [{row.name: row.total_ns for row in one.places.rows} for one in (gpu, alone)]  # type: ignore[union-attr]
        assert totals[0] == totals[1]
        for owner, left in gpu.places.elsewhere_ns.items():
            assert sum(row.ns.get(owner, 0) for row in gpu.places.rows) + left == (gpu.ledger_ns[owner] or 0)
        moved += sum(row.ns.get("idle_peers", 0) for row in gpu.places.rows)
    assert moved


def test_places_are_the_same_again_from_json() -> None:
    made, *_ = random_run(3)
    measures = analyse([made.timeline()]).measures
    assert measures.gpus[0].places is not None and measures.gpus[0].places.rows[0].lines
    again = measures_json.from_json(json.loads(measures_json.dumps(measures)))
    assert again.gpus[0].places == measures.gpus[0].places


def test_without_a_gpu_the_steps_time_is_divided() -> None:
    made = Build()
    for number in range(4):
        made.mark(f"step {number}", number * 10 * MS, (number + 1) * 10 * MS)
        made.mark(place("callback", "Slow.on_train_batch_end", 7), number * 10 * MS, number * 10 * MS + 4 * MS)
        made.mark("wait input", number * 10 * MS + 6 * MS, number * 10 * MS + 9 * MS)
        made.mark(place("dataset", "Data.__getitem__", 3), number * 10 * MS + 5 * MS, number * 10 * MS + 8 * MS, tid=2)
    found = host_places.measure(made.timeline())
    assert found is not None and found.span_ns == 40 * MS and found.of_steps
    assert [(row.name, row.ns) for row in found.places.rows] == [
        ("Slow.on_train_batch_end", {"idle_launch": 16 * MS}),
        ("Data.__getitem__", {"idle_feed": 8 * MS}),
    ]
    assert sum(found.places.elsewhere_ns.values()) == 16 * MS


def test_a_stage_of_the_pipeline_has_what_nothing_else_of_waiting_explains() -> None:
    made = Build()
    made.mark(place("map", "Dataset.map of f", 17), 0, 40 * MS, tid=9)
    for number in range(4):
        made.mark(f"step {number}", number * 10 * MS, (number + 1) * 10 * MS)
        made.mark("wait input", number * 10 * MS + 6 * MS, number * 10 * MS + 9 * MS)
        made.mark(place("dataset", "g", 3), number * 10 * MS + 5 * MS, number * 10 * MS + 7 * MS, tid=2)
        # An augmentation that the body of g calls, and that samples see for longer.
        made.sample(number * 10 * MS + 6 * MS, number * 10 * MS + 8 * MS, "h", 5, steps=False, tid=2)
    found = host_places.measure(made.timeline())
    assert found is not None
    assert {row.name: row.ns for row in found.places.rows} == {
        "Dataset.map of f": {"idle_feed": 8 * MS},
        "g": {"idle_feed": 4 * MS},
    }


@pytest.mark.parametrize(
    ("gap_us", "called", "marked", "claimed_us"),
    [(6000, False, False, 59_900), (3000, False, False, 0), (6000, True, False, 0), (6000, False, True, 0)],
)
def test_without_ranges_of_waiting_long_times_without_calls_are_those_of_what_makes_batches(
    gap_us: int, called: bool, marked: bool, claimed_us: int
) -> None:
    made = loop(gap_us=gap_us)
    for row in [one for one in made.rows["marks"] if one["name"].startswith("step ")]:
        made.mark(place("dataset", "Data.__getitem__", 3), row["start_ns"], row["end_ns"], tid=2)
        for at in (2, 4) if called else ():
            made.api("cudaEventQuery", row["start_ns"] + at * MS, row["start_ns"] + at * MS + US)
    if marked:
        made.mark("wait input", MS, MS + US)
    found = told(made)
    assert sum(row.ns.get("idle_launch", 0) for row in found.rows) == pytest.approx(claimed_us * US, rel=0.12, abs=US)


def test_a_range_of_the_whole_recording_tells_nothing_of_what_the_host_did() -> None:
    made = loop()
    last = max(one["end_ns"] for one in made.rows["marks"])
    made.mark(place("map", "Dataset.map of f", 17), 0, last, tid=9)
    made.mark("reads files", 0, last, tid=8)
    entries = analyse([made.timeline()]).measures.gpus[0].host_while_idle
    assert [one["name"] for one in entries if one["kind"] == "range"] == ["reads files"]


@pytest.mark.parametrize(
    ("via", "source", "waits"),
    [
        ("", "time.sleep(60)", True),
        ("queue.Queue.get", "work = self.todo.get()", True),
        ("socketserver.BaseServer.serve_forever", "server.serve_forever()", True),
        ("numpy.roll", "x = np.roll(x, 1)", False),
        ("requests.Session.get", "picture = session.get(url)", False),
    ],
)
def test_a_thread_that_waits_makes_no_batches(via: str, source: str, waits: bool) -> None:
    made = Build()
    made.mark(place("map", "Dataset.map of f", 17), 0, 40 * MS, tid=9)
    for number in range(4):
        made.mark(f"step {number}", number * 10 * MS, (number + 1) * 10 * MS)
        made.mark("wait input", number * 10 * MS, number * 10 * MS + 5 * MS)
    made.sample(0, 40 * MS, "other", 5, steps=False, tid=2, via=via, source=source)
    found = host_places.measure(made.timeline())
    assert found is not None
    assert [row.name for row in found.places.rows] == ["Dataset.map of f" if waits else "other"]


def test_without_a_gpu_and_without_steps_all_time_that_was_sampled_is_divided() -> None:
    made = Build()
    made.mark(marks.clock(0), 0, US)
    made.sample(2 * MS, 5 * MS, "augmented", steps=True)
    made.sample(5 * MS, 9 * MS, "trains", steps=True, framework=True)
    made.sample(9 * MS, 12 * MS, "augmented", steps=True)
    made.sample(0, 4 * MS, "other", steps=False, tid=2)
    found = host_places.measure(made.timeline())
    assert found is not None and found.span_ns == 12 * MS and not found.of_steps
    assert {row.name: row.total_ns for row in found.places.rows} == {"augmented": 6 * MS, "trains": 4 * MS}
    assert sum(found.places.elsewhere_ns.values()) == 2 * MS
    made.rows["samples"].clear()
    assert host_places.measure(made.timeline()) is None


def test_a_files_name_may_hold_anything_and_a_long_name_ends() -> None:
    """A pattern whose time grows as the square of the name's length would take half an hour."""
    match = re.fullmatch(marks.PLACE, marks.place("callback", "A.on_epoch_end", "a (copy): 2.py", 7))
    assert match is not None and match.groups() == ("callback", "A.on_epoch_end", "a (copy): 2.py", "7")
    for hostile in ("place a " + " (:1" * 300_000, "place a b (" + ":1" * 300_000, "place " + "a " * 300_000):
        assert re.fullmatch(marks.PLACE, hostile) is None
