"""Every nanosecond has one owner: the ledger against plain Python loops and against a bitmap of nanoseconds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.gpus.gather import gather
from profiles.ledger import ownership
from profiles.ledger.account import Account, account, exposed_inputs
from profiles.ledger.window import Window, of_steps
from profiles.metrics.owned import owned_ns
from profiles.model.measures import OWNERS
from profiles.steps.found import FoundSteps, LongSteps
from tests.made.bruteforce import CLASS_NAMES, BruteForce
from tests.made.build import Build
from tests.made.random_timelines import builds, found_steps, regular_builds, regular_steps


def books_of(timelines, gpu, steps, window, shifts=None) -> Account:
    return account(timelines, shifts or [0] * len(timelines), gpu, steps, Window(*window))


def pieces_of(books: Account):
    """Adjacent pieces of one owner as one, by name."""
    found = []
    own = books.ownership
    for start, end, owner in zip(own.start_ns.tolist(), own.end_ns.tolist(), own.owner.tolist(), strict=True):
        if found and found[-1][2] == OWNERS[owner]:
            found[-1] = (found[-1][0], end, OWNERS[owner])
        else:
            found.append((start, end, OWNERS[owner]))
    return found


def joined(pieces):
    found = []
    for start, end, owner in pieces:
        if found and found[-1][2] == owner:
            found[-1] = (found[-1][0], end, owner)
        else:
            found.append((start, end, owner))
    return found


def assert_same(books: Account, brute: BruteForce, known: bool) -> None:
    expected = brute.ledger()
    assert books.busy_ns == brute.busy()
    if known:
        assert pieces_of(books) == joined(brute.pieces)
        given_out = {name: ns for name, ns in books.ledger_ns.items() if ns is not None}
        assert given_out == {name: expected[name] for name in given_out}
        assert all(expected[name] == 0 for name in expected if books.ledger_ns[name] is None)
        this, later = exposed_inputs(books)
        assert (this.total, later.total) == brute.exposed_inputs()
    assert {name: books.ledger_ns[name] for name in CLASS_NAMES} == {name: expected[name] for name in CLASS_NAMES}
    assert sum(ns for ns in books.ledger_ns.values() if ns is not None) == books.window.span_ns


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_ledger_of_a_random_timeline_is_that_of_plain_loops(data):
    made = data.draw(builds())
    steps = data.draw(found_steps(made))
    timeline = made.timeline()
    edges = sorted((data.draw(st.integers(-40, 80000)), data.draw(st.integers(-40, 100))))
    gpus = gather([timeline])  # two where collectives of two processes overlap: these are ranks of their own
    if len(gpus) != 1 or gpus[0].off_clock or not len(gpus[0].operations):
        return
    (gpu,) = gpus
    capture = (int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max()))
    window = data.draw(st.sampled_from((capture, tuple(edges))))
    books = books_of([timeline], gpu, steps, window)
    brute = BruteForce([timeline], [(0, 0)], steps, window)
    assert_same(books, brute, known=gpu.launches.told and bool(gpu.operations.lasting().launched.any()))
    split = ownership.per_bin(books.ownership, steps.start_ns, steps.end_ns)
    for at in range(steps.count):
        bin_of = (int(steps.start_ns[at]), int(steps.end_ns[at]))
        if books.ledger_ns["idle_launch"] is not None:
            assert {name: int(split[name][at]) for name in OWNERS} == brute.ledger(bin_of)


@settings(max_examples=120, deadline=None)
@given(regular_builds())
def test_the_ledger_of_a_training_with_input_copies_is_that_of_plain_loops(training):
    made, count, unit = training
    steps = regular_steps(made, count, unit)
    window = (int(steps.start_ns[0]), int(steps.end_ns[-1]))
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    brute = BruteForce([timeline], [(0, 0)], steps, window)
    assert_same(books_of([timeline], gpu, steps, window), brute, known=gpu.launches.told)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_breaks_are_no_part_of_the_ledger_and_have_their_own(data):
    made = data.draw(builds())
    timeline = made.timeline()
    gpus = gather([timeline])  # two where collectives of two processes overlap: these are ranks of their own
    if len(gpus) != 1 or gpus[0].off_clock or not len(gpus[0].operations):
        return
    (gpu,) = gpus
    edges = sorted(data.draw(st.sets(st.integers(-40, 120), min_size=6, max_size=6)))
    bins = list(zip(edges[:-1], edges[1:], strict=True))
    measured, long = bins[::2], bins[1::2]  # every other one, of which none is before the first measured one
    start, end = (np.array(side, np.int64) for side in zip(*measured, strict=True))
    steps = FoundSteps(
        start_ns=start,
        end_ns=end,
        long=LongSteps(*(np.array(side, np.int64) for side in zip(*long, strict=True)), *2 * [np.zeros(2, np.int64)]),
    )
    books = account([timeline], [0], gpu, steps, of_steps(steps))
    brute = BruteForce([timeline], [(0, 0)], steps, (edges[0], edges[-1]))
    if books.ledger_ns["idle_launch"] is None:
        return
    for found, parts in [(books.ledger_ns, measured), *zip(books.breaks_ns, ([one] for one in long), strict=True)]:
        each = [brute.ledger(part) for part in parts]
        assert {name: ns for name, ns in found.items() if ns is not None} == {
            name: sum(one[name] for one in each) for name, ns in found.items() if ns is not None
        }
    busy = [brute.busy(part) for part in measured]
    assert books.busy_ns == {name: sum(one[name] for one in busy) for name in CLASS_NAMES}
    kernels = sum(int(ns.sum()) for _, ns in owned_ns(gpu.operations, books.ownership, books.window))
    assert kernels == books.ledger_ns["compute"] + books.ledger_ns["collective"]


@settings(max_examples=40, deadline=None)
@given(builds(pids=(1,)), builds(pids=(2,)), st.integers(-50, 50))
def test_a_gpu_in_two_recordings_has_one_ledger(first, second, shift):
    first.device(0, uuid="same")
    second.device(0, uuid="same")
    timelines = [first.timeline(), second.timeline()]
    # Copies within the host are on no GPU: a recording of nothing else does not have it.
    gpus = gather(timelines, [0, shift])
    if [len(gpu.places) for gpu in gpus] != [2] or gpus[0].off_clock:
        return
    window = (-20, 120)
    books = books_of(timelines, gpus[0], FoundSteps(refused="none"), window, [0, shift])
    brute = BruteForce(timelines, [(0, 0), (1, 0)], FoundSteps(), window, [0, shift])
    assert_same(books, brute, known=books.ledger_ns["idle_launch"] is not None)


@settings(max_examples=60, deadline=None)
@given(builds())
def test_every_nanosecond_belongs_to_the_first_active_class(made):
    """A bitmap, one entry a nanosecond: no boundaries, no loops over intervals."""
    timeline = made.timeline()
    window = (-10, 110)
    gpus = gather([timeline])
    if not gpus:
        return
    active = {name: set() for name in CLASS_NAMES}
    for table in ("kernels", "graphs", "copies", "memsets"):
        for row in made.rows[table]:
            if table == "kernels":
                name = "collective" if row["name"].startswith("nccl") else "compute"
            else:
                name = {"graphs": "compute", "memsets": "memset"}.get(table) or row["kind"]
            if name != "h2h":
                active[{"other": "d2d"}.get(name, name)] |= set(range(row["start_ns"], min(row["end_ns"], window[1])))
    expected = dict.fromkeys(CLASS_NAMES, 0)
    for instant in range(*window):
        owner = next((name for name in CLASS_NAMES if instant in active[name]), None)
        if owner:
            expected[owner] += 1
    (gpu,) = gpus
    books = books_of([timeline], gpu, FoundSteps(), window)
    assert {name: books.ledger_ns[name] for name in CLASS_NAMES} == expected


def test_a_copy_hidden_by_compute_costs_nothing():
    made = Build()
    made.kernel(0, 100, call=(-10, -5))
    made.copy("h2d", 20, 60, call=(15, 60))
    timeline = made.timeline()
    books = books_of([timeline], *gather([timeline]), FoundSteps(), (0, 100))
    assert books.ledger_ns["h2d"] == 0 and books.busy_ns["h2d"] == 40 and books.ledger_ns["compute"] == 100


@pytest.mark.parametrize(("above", "below"), list(pairwise(CLASS_NAMES)))
def test_of_two_classes_at_once_the_first_owns_the_time(above, below):
    """Random timelines seldom hold copies of two kinds at once in such a way that it shows."""
    made = Build()
    for stream, name in enumerate((below, above), 1):
        if name in ("compute", "collective"):
            made.kernel(0, 100, {"compute": "k", "collective": "ncclDevKernel_AllReduce"}[name], stream=stream)
        elif name == "memset":
            made.memset(0, 100, stream=stream)
        else:
            made.copy(name, 0, 100, stream=stream)
    timeline = made.timeline()
    books = books_of([timeline], *gather([timeline]), FoundSteps(), (0, 100))
    assert (books.ledger_ns[above], books.ledger_ns[below] or 0) == (100, 0)
