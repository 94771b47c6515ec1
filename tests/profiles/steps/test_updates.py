"""Steps by the ranges that PyTorch writes around an optimizer's call, on trainings that the test made and on real ones
whose marks of steps are left out."""

from __future__ import annotations

import numpy as np
import pytest

from profiles import readers
from tests.profiles.steps.test_find import BACKWARD, BATCH_GAP, FORWARD, UPDATE, Training, agrees
from tests.profiles.steps.test_recordings import steps_of, without_marks
from tests.recordings import MORE
from tests.tiers import few

KINETO = MORE / "kineto"
needs_more = pytest.mark.skipif(not KINETO.is_dir(), reason="no ../shared/recordings/more")
NAME = "Optimizer.step#AdamW.step"


def step(training: Training, names: list[str], *, gap: int = BATCH_GAP) -> None:
    """One step, launched 5 us before each kernel, without a collective."""
    training.now += gap
    training.start.append(training.now)
    passed(training, names)


def passed(training: Training, names: list[str]) -> None:
    for name in names:
        training.made.kernel(
            training.now, training.now + 10_000, name, call=(training.now - 5_000, training.now - 4_000)
        )
        training.now += 10_000
    training.last_end[len(training.start) - 1 :] = [training.now]


def update(training: Training, names: list[str] = UPDATE, *, name: str = NAME) -> None:
    begin = training.now - 6_000
    passed(training, names)
    training.made.mark(name, begin, training.now, domain="")


def steps(training: Training, count: int) -> None:
    for _ in range(count):
        step(training, FORWARD + BACKWARD)
        update(training)


@pytest.mark.parametrize("count", [3, 4, 5, 12])
def test_few_calls_of_an_optimizer_tell_the_steps(count):
    training = Training()
    steps(training, count)
    found = training.found()
    assert found.source == "pytorch"
    assert agrees(found, training, 0, count - 2)
    assert (found.warm_up, found.partial, found.breaks) == (0, 1, 0)


@pytest.mark.parametrize(("count", "often"), [(1, "once"), (2, "2 times")])
def test_one_step_between_two_calls_could_be_anything(count, often):
    training = Training()
    steps(training, count)
    found = training.found()
    assert found.source is None and f"by the optimizer's calls: these occur only {often}" in str(found.refused)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_two_optimizers_by_turns_are_no_two_steps(count):
    """As those of a GAN, of one class: the generator's pass is another than the discriminator's."""
    training = Training()
    for _ in range(count):
        step(training, FORWARD + BACKWARD)
        update(training)
        passed(training, [f"generator{i}" for i in range(40)])
        update(training)
    assert training.found().source is None


def test_two_optimizers_by_turns_are_one_step_where_there_are_enough():
    training = Training()
    for _ in range(12):
        step(training, FORWARD + BACKWARD)
        update(training)
        passed(training, [f"generator{i}" for i in range(40)])
        update(training)
    found = training.found()
    assert found.source == "pytorch" and found.count >= 10
    assert set(found.start_ns.tolist()) <= set(training.start)


def test_micro_batches_between_two_calls_are_one_step():
    training = Training()
    for _ in range(4):
        step(training, [*FORWARD, *BACKWARD] * 3)
        update(training)
    found = training.found()
    assert found.source == "pytorch"
    assert agrees(found, training, 0, 2)


def test_an_evaluation_among_few_steps_leaves_no_step_of_two():
    training = Training()
    steps(training, 3)
    passed(training, FORWARD * 4)
    steps(training, 3)
    found = training.found()
    lasted = np.diff(training.start)
    assert all(one in lasted for one in (found.end_ns - found.start_ns).tolist())


WITH_MARKS = [
    "kineto__resnet50_w0_a.pt.trace",
    "kineto__resnet50_w4_a.pt.trace",
    "hta__ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace",
    "hta__trace_diff__control__control",
]


@needs_more
@pytest.mark.parametrize("name", few(WITH_MARKS))
def test_without_their_marks_real_steps_are_as_long(name):
    timeline = readers.read(KINETO / f"{name}.json.gz", cache=False)
    (_, by_marks), (_, by_updates) = steps_of(timeline), steps_of(without_marks(timeline, "^ProfilerStep#"))
    assert (by_marks.source, by_updates.source) == ("marks", "pytorch")
    lasted, again = (np.median(found.end_ns - found.start_ns) for found in (by_marks, by_updates))
    assert again == pytest.approx(lasted, rel=0.01)
    assert by_updates.count >= by_marks.count - 1


@needs_more
@pytest.mark.parametrize(("name", "calls"), [("hta__step_based_trace", 5), ("tracelens__ddp_resnet18", 5)])
def test_real_recordings_without_marks_have_steps(name, calls):
    _, found = steps_of(readers.read(KINETO / f"{name}.json.gz", cache=False))
    assert found.source == "pytorch" and found.count == calls - 1
