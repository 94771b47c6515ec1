"""Which copies bring the batches where nothing names them: by repetition, one or several of a size a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from profiles import measure, read
from profiles.gpus.gather import gather
from profiles.ledger.account import account
from profiles.ledger.window import Window
from profiles.steps.found import FoundSteps
from tests.made.bruteforce import BruteForce, feeding
from tests.made.build import Build
from tests.recordings import DATA

STEPS, PERIOD, SIZE = 12, 1000, 1 << 20
CONST = 65_536


def trained(
    copies_of: Callable[[int], int], *, ahead: int = 0, lost: int = 0, more: int = 1
) -> tuple[Build, FoundSteps]:
    """Steps of 600 in every 1000 ns; `copies_of(batch)` copies of one size a batch, one after the other in the batch
    gap, `ahead` steps early, called when the GPU has run dry. Of the first batch the recording lacks `lost`."""
    made = Build()
    for batch in range(STEPS + ahead + more):
        at = (batch - ahead) * PERIOD
        for copy in range(lost if batch == 0 else 0, copies_of(batch)):
            start = at - 300 + 10 * copy
            made.copy("h2d", start, start + 10, SIZE, call=(start - 50, start + 10), stream=2)
    for at in range(0, STEPS * PERIOD, PERIOD):
        made.kernel(at, at + 600, call=(at - 700, at - 690))
    start = np.arange(STEPS, dtype=np.int64) * PERIOD
    return made, FoundSteps(
        source="marks",
        start_ns=start[1:-1],
        end_ns=start[2:],
        step_number=np.arange(1, STEPS - 1),
        last_kernel_end_ns=start[1:-1] + 600,
        prev_last_kernel_end_ns=start[:-2] + 600,
        all_start_ns=start,
        all_last_kernel_end_ns=start + 600,
    )


def inputs_of(made: Build, steps: FoundSteps) -> tuple[int, int, bool, int | None]:
    """(input copies, those for the step about to start, certain, idle_feed): as plain loops have them."""
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    window = (int(steps.start_ns[0]), int(steps.end_ns[-1]))
    books = account([timeline], [0], gpu, steps, Window(*window))
    brute = BruteForce([timeline], [(0, 0)], steps, window)
    plain = feeding(brute.ops, steps, False)
    found = books.inputs
    assert found is not None and plain is not None
    assert (int(found.is_input.sum()), int(found.this_step.sum()), found.certain) == tuple(map(len, plain[:2])) + plain[
        2:
    ]
    feed = books.ledger_ns["idle_feed"]
    assert feed is None or feed == brute.ledger()["idle_feed"]
    return int(found.is_input.sum()), int(found.this_step.sum()), found.certain, feed


@pytest.mark.parametrize("each", [1, 2, 3, 8])
def test_several_tensors_of_one_size_are_all_of_the_batch(each: int):
    """Nobody but the first ends idle time: from the GPU's running dry to its start, 100 ns a step."""
    made, steps = trained(lambda batch: each)
    assert inputs_of(made, steps) == (each * (STEPS + 1), each * (STEPS + 1), True, 100 * (STEPS - 2))


@pytest.mark.parametrize("each", [1, 2, 3])
def test_several_tensors_copied_ahead_are_no_feed_gap(each: int):
    """But for the first batch, which comes before all steps."""
    made, steps = trained(lambda batch: each, ahead=1)
    assert inputs_of(made, steps) == (each * (STEPS + 2), each, True, 0)


@pytest.mark.parametrize(
    ("learns", "back", "inputs"),
    [(True, STEPS, 0), (True, STEPS - 2, STEPS + 1), (True, 0, STEPS + 1), (False, STEPS, STEPS + 1)],
)
def test_what_a_training_copies_to_the_host_as_often_is_no_batch(learns: bool, back: int, inputs: int):
    """Weights that an optimizer on the host updates. An inference may answer with as many bytes as it takes."""
    made, steps = trained(lambda batch: 1)
    for at in range(0, back * PERIOD, PERIOD):
        made.copy("d2h", at + 100, at + 150, SIZE, call=(at + 90, at + 95), stream=3)
    assert inputs_of(made, replace(steps, learns=learns))[:2] == (inputs, inputs)


@pytest.mark.parametrize("each", [9, 40])
def test_copies_of_one_size_by_the_dozen_are_no_batch(each: int):
    made, steps = trained(lambda batch: min(each, 25))
    assert inputs_of(made, steps) == (0, 0, True, 0)


@pytest.mark.parametrize(
    "copies_of",
    [lambda batch: 1 + batch % 2, lambda batch: (1, 2, 4)[batch % 3], lambda batch: 2 if batch < 6 else 3],
    ids=["1-2-1-2", "1-2-4", "2 then 3"],
)
def test_now_this_many_now_that_many_copies_are_no_batch(copies_of: Callable[[int], int]):
    made, steps = trained(copies_of)
    assert inputs_of(made, steps) == (0, 0, True, 0)


@pytest.mark.parametrize("odd", [0, 3])
def test_one_step_with_other_copies_is_forgiven_and_leaves_the_order_open_where_it_shifts_it(odd: int):
    """A burst, as a feed that fills up makes, or a step without: input copies all the same."""
    made, steps = trained(lambda batch: odd * 2 if batch == 5 else 2)
    count, _, certain, feed = inputs_of(made, steps)
    assert count == 2 * (STEPS + 1) + 2 * (odd - 1)
    assert not certain and feed is None


def test_a_batch_that_was_recorded_in_part_leaves_the_order_open():
    """Else every pair would hold the second tensor of one batch and the first of the next."""
    made, steps = trained(lambda batch: 2, lost=1, more=2)
    count, this_step, certain, feed = inputs_of(made, steps)
    assert (count, this_step, certain, feed) == (2 * (STEPS + 2) - 1, 0, False, None)


def test_as_many_batches_as_steps_leave_the_order_open():
    made, steps = trained(lambda batch: 2, more=0)
    assert inputs_of(made, steps) == (2 * STEPS, 0, False, None)


def test_a_constant_of_another_size_once_in_a_while_is_no_batch():
    made, steps = trained(lambda batch: 2)
    for step in (2, 3, 9):
        made.copy("h2d", step * PERIOD + 700, step * PERIOD + 705, CONST, call=(0, 1), stream=2)
    assert inputs_of(made, steps)[0] == 2 * (STEPS + 1)


@pytest.mark.parametrize("kind", ["graph", "node"])
def test_a_feed_that_fills_up_late_brings_input_copies_all_the_same(kind: str):
    """Real: `prefetch_to_device`, which copies three batches in one of the first steps; 256 images of 32x32x3 bytes."""
    measures = measure(read(DATA / f"cnn-1gpu-{kind}.rank0.sqlite.xz"), window="capture")
    (gpu,) = measures.gpus
    assert gpu.input_copies is not None
    assert (gpu.input_copies["count"], gpu.input_copies["bytes"]) == (12, 12 * 256 * 32 * 32 * 3)
    assert "copy-order-unknown" in {doubt.code for doubt in measures.doubts}


@pytest.mark.parametrize(("stream", "late"), [(7, True), (2, False)])
def test_batches_copied_on_the_stream_of_the_kernels_are_waited_for_whatever_came_before(
    stream: int, late: bool
) -> None:
    """An eager loop, recorded from its start: two steps that try kernels out make one head, so that counting the copies
    from the first one would take each for the step after."""
    made, now = Build(), 1_000_000
    for step in range(10):
        now += 3_000_000  # the host makes a batch
        made.copy("h2d", now, now + 50_000, SIZE, call=(now - 40_000, now + 50_000), stream=stream)
        now += 50_000
        for name in ("forward", "loss", "backward", "multi_tensor_apply"):
            name = f"tried out {step}" if step < 2 and name != "backward" else name
            made.kernel(now, now + 200_000, name, call=(now - 20_000, now - 10_000))
            now += 201_000
    measured = measure(made.timeline())
    (gpu,) = measured.gpus
    assert (gpu.steps.source, gpu.steps.count) == ("period", 6)
    assert ((gpu.ledger_ns["idle_feed"] or 0) > 0.7 * gpu.span_ns) is late
    assert (measured.findings[0].code == "input-pipeline-slow") is late
