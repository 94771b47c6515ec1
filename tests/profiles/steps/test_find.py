"""Steps from every source, on trainings whose steps are known because the test made them."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings

from profiles import analyse
from profiles.gpus import gather
from profiles.model import measures_json
from profiles.steps import find
from profiles.steps.found import FoundSteps, first_of_all, starting_from
from tests.made.build import Build
from tests.made.random_timelines import builds

FORWARD = [f"forward{i}" for i in range(20)]
BACKWARD = [f"backward{i % 15}" for i in range(30)]  # every name twice
UPDATE = [f"ApplyMomentum{i}" for i in range(10)]
STEP = FORWARD + BACKWARD + ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] + UPDATE
BATCH_GAP = 3_000_000
ARRAYS = ("start_ns", "end_ns", "step_number", "last_kernel_end_ns", "prev_last_kernel_end_ns")


class Training:
    """Appends kernels one after another and remembers where the steps it made begin and end."""

    def __init__(self, **defaults: int) -> None:
        self.made = Build(**defaults)
        self.now = 1_000_000
        self.start: list[int] = []
        self.last_end: list[int] = []

    def phase(self, names: list[str], *, pause: int = 1_000, lasts: int = 10_000, **more: object) -> None:
        for name in names:
            self.now += pause
            self.made.kernel(self.now, self.now + lasts, name, **more)
            self.now += lasts

    def step(self, names: list[str] = STEP, *, gap: int = BATCH_GAP, **more: int) -> None:
        self.now += gap
        self.start.append(self.now + more.get("pause", 1_000))
        self.phase(names, **more)
        self.last_end.append(self.now)

    def found(self) -> FoundSteps:
        timeline = self.made.timeline()
        (gpu,) = gather.gather([timeline])
        return find.find(gpu, [timeline])


def whole(training: Training, first: int, last: int) -> tuple[list[int], list[int]]:
    """Starts and ends of steps first..last of a training, as the training knows them."""
    return training.start[first : last + 1], training.start[first + 1 : last + 2]


def agrees(found: FoundSteps, training: Training, first: int, last: int) -> bool:
    start, end = whole(training, first, last)
    before = training.last_end[first - 1 : last] if first else [-1, *training.last_end[:last]]
    return (
        found.start_ns.tolist() == start
        and found.end_ns.tolist() == end
        and found.last_kernel_end_ns.tolist() == training.last_end[first : last + 1]
        and found.prev_last_kernel_end_ns.tolist() == before
    )


def test_kernels_alone_tell_the_steps_by_their_period():
    training = Training()
    for _ in range(12):
        training.step()
    found = training.found()
    # Nothing says where the last ends; the head, with its collective in it, is a whole step.
    assert found.source == "collectives"
    assert agrees(found, training, 0, 10)
    assert (found.warm_up, found.partial, found.breaks) == (0, 1, 0)


def plain(names: list[str] = STEP) -> list[str]:
    return [name.replace("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "sum") for name in names]


def test_without_collectives_the_period_of_the_names_tells_them():
    training = Training()
    for _ in range(12):
        training.step(plain())
    found = training.found()
    assert found.source == "period"
    assert agrees(found, training, 0, 10)


def test_steps_of_a_slow_start_are_warm_up():
    training = Training()
    for lasts in (90_000, 30_000, *[10_000] * 12):
        training.step(plain(), lasts=lasts)
    found = training.found()
    assert found.warm_up == 2
    assert agrees(found, training, 2, 12)


def test_a_slow_step_later_on_is_measured_and_a_break_is_not():
    training = Training()
    for number in range(20):
        training.step(plain(), gap=BATCH_GAP * (2 if number == 7 else 10 if number == 13 else 1))
    found = training.found()
    # A batch gap belongs to the step before it, that ends where the next one starts.
    expected = [number for number in range(19) if number != 12]
    assert found.start_ns.tolist() == [training.start[number] for number in expected]
    assert found.end_ns.tolist() == [training.start[number + 1] for number in expected]
    assert (found.warm_up, found.breaks) == (0, 1)


def test_a_changed_step_leaves_the_others_where_they_are():
    training = Training()
    for number in range(20):
        training.step(plain(STEP + ["summary"] * 12 if number == 9 else STEP))
    assert agrees(training.found(), training, 0, 18)


@pytest.mark.parametrize("batches", [4, 40])
def test_an_evaluation_in_the_middle_is_a_break(batches):
    training = Training()
    for _ in range(15):
        training.step(plain())
    for _ in range(batches):
        training.phase(FORWARD, lasts=100_000)
        training.now += 2_000_000
    for _ in range(15):
        training.step(plain())
    found = training.found()
    assert found.source == "period"
    assert found.breaks == 1
    expected = [number for number in range(29) if number != 14]
    assert found.start_ns.tolist() == [training.start[number] for number in expected]


def test_two_alternating_graphs_repeat_as_a_pair():
    training = Training()
    generator = [*(f"generator{i}" for i in range(25)), "ApplyAdam"]
    critic = [*(f"critic{i}" for i in range(40)), "ApplyAdam"]
    for number in range(24):
        training.step(generator if number % 2 else critic, gap=BATCH_GAP if number % 2 else 2 * BATCH_GAP)
    found = training.found()
    pairs = training.start[::2]
    assert found.source == "period"
    assert set(found.start_ns.tolist()) <= set(pairs)
    assert found.count == 11
    assert found.end_ns.tolist() == pairs[1:]


def test_layers_are_no_steps_where_a_larger_period_explains_more():
    training = Training()
    layer = [f"layer{i}" for i in range(10)]
    for _ in range(7):
        training.step(["embed"] + layer * 24 + ["loss"] * 2 + [f"backward{i}" for i in range(10)] * 24 + UPDATE)
    assert agrees(training.found(), training, 0, 5)


@pytest.mark.parametrize("seed", range(5))
def test_kernels_that_change_places_and_come_and_go_move_no_boundary_further_than_a_kernel(seed):
    chance = random.Random(seed)
    training = Training()
    for _ in range(30):
        names = plain()
        for _ in range(6):
            at = chance.randrange(len(names) - 1)
            names[at], names[at + 1] = names[at + 1], names[at]
        if chance.random() < 0.3:
            names.insert(chance.randrange(1, len(names)), "now_and_then")
        training.step(names, gap=int(BATCH_GAP * chance.uniform(0.5, 2)))
    found = training.found()
    assert found.source == "period"
    assert found.count >= 28
    nearest = [min(abs(start - known) for known in training.start) for start in found.start_ns.tolist()]
    assert sum(off == 0 for off in nearest) >= 0.9 * len(nearest)
    assert max(nearest) <= BATCH_GAP


@pytest.mark.parametrize("seed", range(5))
def test_kernels_without_a_period_are_refused(seed):
    chance = random.Random(seed)
    training = Training()
    for _ in range(40):
        training.step([f"kernel{chance.randrange(30)}" for _ in range(chance.randrange(20, 80))])
    found = training.found()
    assert found.source is None
    assert found.refused
    assert found.count == 0


def test_one_kernel_over_and_over_is_no_training():
    training = Training()
    training.phase(["saxpy"] * 500)
    assert training.found().source is None


def test_a_burst_of_equal_kernels_in_a_recording_without_a_period_is_refused():
    chance = random.Random(1)
    training = Training()
    for _ in range(10):
        training.phase(["fill_a", "fill_b"])
    training.phase([f"kernel{chance.randrange(200)}" for _ in range(400)])
    found = training.found()
    assert found.source is None
    assert found.refused


def test_four_repetitions_are_too_few():
    training = Training()
    for _ in range(5):
        training.step(plain())
    assert training.found().source is None


def test_a_graph_launch_a_step_is_a_step():
    training = Training()
    for _ in range(9):
        training.now += BATCH_GAP
        training.start.append(training.now)
        training.made.copy("h2d", training.now - 2_000, training.now - 1_000, size=1 << 20)
        training.made.graph(training.now, training.now + 5_000_000, graph=7)
        training.now += 5_000_000
        training.last_end.append(training.now)
    assert agrees(training.found(), training, 0, 7)


def test_launching_far_ahead_leaves_a_period_and_no_batch_gaps():
    training = Training()
    for _ in range(20):
        training.step(plain(), gap=0)
    found = training.found()
    assert found.source == "period"
    lasted = np.diff(training.start)
    assert set((found.end_ns - found.start_ns).tolist()) == set(lasted.tolist())
    assert (found.prev_last_kernel_end_ns == -1).all()
    assert not len(found.all_last_kernel_end_ns)


@pytest.mark.parametrize("work", ["memset", "d2d"])
def test_a_pause_of_the_kernels_in_which_the_gpu_fills_its_memory_is_no_batch_gap(work: str):
    """The middle of each step: 100 µs without a kernel, of which a memset or a copy within the GPU takes `busy`."""

    def trained(busy: int, gap: int) -> Training:
        training = Training()
        for _ in range(20):
            training.step([name for name in STEP[:30] if "nccl" not in name], gap=gap)
            begun = training.now + 2_000
            if work == "memset":
                training.made.memset(begun, begun + busy, 1 << 28)
            else:
                training.made.copy("d2d", begun, begun + busy, 1 << 28)
            training.now += 100_000
            training.phase(UPDATE)
            training.last_end[-1] = training.now
        return training

    found = trained(busy=95_000, gap=4_000).found()
    assert found.source == "period" and not len(found.all_last_kernel_end_ns)
    training = trained(busy=60_000, gap=70_000)
    assert agrees(training.found(), training, 0, 18)
    training = trained(busy=10_000, gap=70_000)  # the longer pause is the one in the middle
    middle = [end - 10 * (1_000 + 10_000) + 1_000 for end in training.last_end]
    assert training.found().start_ns.tolist() == middle[: training.found().count]
    assert training.found().count >= 18


def test_several_collectives_a_step_are_counted_by_the_kernels_between_them():
    training = Training()
    bucket = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    names = FORWARD + BACKWARD[:10] + [bucket] + BACKWARD[10:20] + [bucket] + BACKWARD[20:] + [bucket] + UPDATE
    for _ in range(10):
        training.step(names)
    found = training.found()
    assert found.source == "collectives"
    assert agrees(found, training, found.step_number[0], 8)
    assert found.count >= 8


def marked(training: Training, count: int, *, ahead: int = 0, last_open: bool = False, pid: int = 1) -> None:
    """Steps whose marks and launches run `ahead` of the GPU, launched from another thread than the marks'."""
    for number in range(count):
        begin = training.now + BATCH_GAP - ahead
        calls = itertools.count(begin + 100, 50)
        training.now += BATCH_GAP
        training.start.append(training.now)
        for name in plain():
            call = next(calls)
            training.made.kernel(training.now, training.now + 10_000, name, call=(call, call + 40), tid=77, pid=pid)
            training.now += 10_000
        training.last_end.append(training.now)
        end = None if last_open and number == count - 1 else training.now + 500_000
        training.made.mark(f"step {number}", begin, end, domain="any", pid=pid)


def test_a_collective_that_begins_now_before_and_now_after_some_kernels_makes_no_step_of_two():
    """As the first all-gather of FSDP does: from each second one to the next are as many kernels as ever."""
    training, anyone = Training(), "ncclDevKernel_Generic_1"
    for number in range(16):
        at = 9 * (number % 2)
        forward = [*FORWARD[:at], anyone, *FORWARD[at:]]
        training.step([*forward, anyone, *BACKWARD[:15], anyone, *BACKWARD[15:], *UPDATE])
    found = training.found()
    assert found.source == "collectives" and found.count >= 13
    assert np.diff(found.start_ns).tolist() == [training.start[1] - training.start[0]] * (found.count - 1)


@pytest.mark.parametrize("ahead", [200, 1_000_000, 2_500_000])
def test_a_step_is_what_was_launched_under_its_mark_on_whatever_thread(ahead):
    training = Training()
    marked(training, 6, ahead=ahead)
    found = training.found()
    assert found.source == "marks"
    assert found.step_number.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.start_ns.tolist() == training.start
    assert found.end_ns.tolist() == [*training.start[1:], training.last_end[-1] + 500_000]


def test_the_last_marked_step_is_not_whole_where_its_mark_is_open():
    training = Training()
    marked(training, 6, last_open=True)
    found = training.found()
    assert agrees(found, training, 0, 4)
    assert found.partial == 1


def test_the_last_marked_step_is_not_whole_where_a_kernel_outlives_its_mark():
    training = Training()
    marked(training, 6)
    late = training.now + 600_000
    training.made.kernel(late, late + 5, "late", call=(late - 50_000, late - 40_000))
    assert agrees(training.found(), training, 0, 4)


@pytest.mark.parametrize("ends_later_ns, is_whole", [(-1, False), (0, True), (1, True)])
def test_the_last_marked_step_is_whole_from_where_its_mark_ends_with_its_last_kernel(ends_later_ns, is_whole):
    training = Training()
    marked(training, 6)
    last = training.made.rows["marks"][-1]
    last["end_ns"] = training.last_end[-1] + ends_later_ns
    found = training.found()
    assert found.step_number.tolist() == list(range(6 if is_whole else 5))
    assert found.end_ns.tolist()[-1] == (last["end_ns"] if is_whole else training.start[5])
    assert found.partial == (not is_whole)


@pytest.mark.parametrize(
    "place, ns, warm_up, breaks",
    [
        (0, 11_000_000, 0, 0),  # a tenth above the median, where all others are of one length
        (0, 11_000_001, 1, 0),
        (6, 11_000_001, 0, 0),
        (6, 30_000_000, 0, 0),
        (6, 30_000_001, 0, 1),
    ],
)
def test_a_step_is_warm_up_above_a_tenth_more_and_a_break_above_three_medians(place, ns, warm_up, breaks):
    training = Training()
    lengths = [10_000_000] * 12
    lengths[place] = ns
    for number, (at, length) in enumerate(zip(itertools.accumulate([0, *lengths]), lengths, strict=False)):
        training.made.mark(f"step {number}", at - 10, at + length - 10)
        training.made.kernel(at, at + length - 20, call=(at - 9, at - 8))
    found = training.found()
    assert (found.source, found.warm_up, found.breaks, found.partial) == ("marks", warm_up, breaks, 0)
    assert found.step_number.tolist() == [one for one in range(12) if one != place or not warm_up + breaks]


def test_marks_of_another_process_do_not_mark_this_one():
    training = Training()
    marked(training, 4, pid=2)
    training.made.mark("step 99", training.start[2], training.start[2] + 5, pid=3)
    assert training.found().step_number.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["#edge_name=edge_3_OptionalHasValue#", "#edge_name=edge_16_IteratorGetNext#"])
def test_tensorflows_ranges_mark_a_time_and_the_batch_gap_the_boundary(name):
    training = Training()
    for _ in range(9):
        mark = training.now + 1_000
        call = mark + 500
        training.now += BATCH_GAP
        training.start.append(training.now)
        for kernel in plain():
            training.made.kernel(training.now, training.now + 10_000, kernel, call=(call, call + 10))
            training.now += 10_000
            call += 5_000
        training.last_end.append(training.now)
        training.made.mark(name, mark, mark + 100, domain="TSL")
    found = training.found()
    assert found.source == "tensorflow"
    assert agrees(found, training, 1, 7) or agrees(found, training, 0, 7)


def fed(training: Training, names: list[str], *, marks: int = 1, is_step: bool = True) -> None:
    """A batch by TensorFlow: its range `marks` times, then its kernels."""
    for place in range(marks):
        at = training.now + 1_000 + place
        training.made.mark("#edge_name=edge_3_OptionalHasValue#", at, at + 10, domain="TSL")
    call = training.now + 2_000
    training.now += BATCH_GAP
    if is_step:
        training.start.append(training.now)
    for kernel in names:
        training.made.kernel(training.now, training.now + 10_000, kernel, call=(call, call + 10))
        training.now += 10_000
        call += 5_000
    if is_step:
        training.last_end.append(training.now)


def test_batches_of_an_evaluation_are_no_steps():
    training = Training()
    for _ in range(8):
        fed(training, plain())
    for _ in range(20):
        fed(training, FORWARD, is_step=False)
    for _ in range(8):
        fed(training, plain())
    found = training.found()
    assert found.source == "tensorflow"
    assert set(found.start_ns.tolist()) <= set(training.start)
    assert (found.count, found.breaks) == (14, 1) or (found.count, found.breaks) == (13, 1)
    assert training.start[7] not in found.start_ns  # the evaluation runs before the next step begins


def test_ranges_that_come_several_times_a_step_are_counted_by_the_kernels_between_them():
    training = Training()
    for _ in range(10):
        half = len(plain()) // 2
        fed(training, plain()[:half])
        training.now -= BATCH_GAP
        fed(training, plain()[half:], is_step=False)
    found = training.found()
    assert found.source == "tensorflow"
    assert found.count >= 7
    assert set(found.start_ns.tolist()) <= set(training.start)
    assert set(found.end_ns.tolist()) <= set(training.start)


def test_a_marked_step_without_kernels_is_a_step_all_the_same():
    training = Training()
    marked(training, 3)
    for number in (3, 4):
        training.made.mark(f"step {number}", training.now + 1_000_000, training.now + 1_500_000, domain="any")
        training.start.append(training.now + 1_000_000)
        training.now += 2_000_000
    begin = training.now
    training.made.mark("step 5", begin, begin + 90_000, domain="any")
    training.made.kernel(begin + 10, begin + 20, call=(begin + 1, begin + 2))
    training.start.append(begin + 10)
    found = training.found()
    assert found.step_number.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.start_ns.tolist() == training.start


@settings(deadline=None, max_examples=30)
@given(builds(), builds())
def test_whatever_a_recording_holds_measured_steps_are_in_order_and_do_not_overlap(one, other):
    timelines = [one.timeline(), other.timeline()]
    for gpu in gather.gather(timelines):
        found = find.find(gpu, timelines)
        lengths = {len(getattr(found, name)) for name in ARRAYS}
        assert lengths == {found.count}
        assert (found.source is None) == (found.refused is not None)
        assert (found.end_ns >= found.start_ns).all()
        assert (found.start_ns[1:] >= found.end_ns[:-1]).all()
        assert set(found.start_ns.tolist()) <= set(found.all_start_ns.tolist())
        assert len(found.all_last_kernel_end_ns) in (0, len(found.all_start_ns))


def test_warm_up_is_the_longest_of_the_runs_gpus_on_all_of_them():
    found = []
    for slow in (1, 3):
        training = Training()
        for number in range(15):
            training.step(plain(), lasts=50_000 if number < slow else 10_000)
        found.append(training.found())
    first = first_of_all((one.source, one.first) for one in found)
    alike = [starting_from(one, first) for one in found]
    assert [one.warm_up for one in found] == [1, 3]
    assert [one.warm_up for one in alike] == [3, 3]
    assert alike[0].step_number.tolist() == alike[1].step_number.tolist()
    assert alike[0].start_ns.tolist() == found[0].start_ns[2:].tolist()


def test_where_every_kernel_comes_several_times_a_step_successions_of_kernels_are_the_anchors():
    training = Training()
    names = [
        "multiply",
        "add",
        "add",
        "reduce",
        "multiply",
        "reduce",
        "add",
        "multiply",
        "multiply",
        "reduce",
        "reduce",
    ]
    for _ in range(12):
        training.made.copy("h2d", training.now + 1_000, training.now + 2_000, size=1 << 20)
        training.step(names)
    found = training.found()
    assert found.source == "period"
    assert found.count >= 10
    assert set(found.start_ns.tolist()) <= set(training.start)
    assert set(found.end_ns.tolist()) <= set(training.start)


@pytest.mark.parametrize("missing", range(0, 61, 7))
def test_a_step_that_lacks_a_kernel_is_still_one_step(missing):
    training = Training()
    for number in range(20):
        names = plain()
        if number in (6, 13):
            del names[missing]
        training.step(names)
    assert agrees(training.found(), training, 0, 18)


@pytest.mark.parametrize("seed", range(20))
def test_no_break_lies_before_the_first_measured_step(seed: int) -> None:
    """Where steps differ much, the first may be longer than three medians and not slow beside the others."""
    lasted = np.random.default_rng(seed).lognormal(0, 1.5, 12) * 10**6
    edges = np.append(0, np.cumsum(lasted)).astype(np.int64)
    start, end, whole = edges[:-1], edges[1:], np.ones(len(lasted), np.bool_)
    found = find._measured("marks", find._Steps(start, end, end, np.full(12, -1), np.arange(12), whole, True))
    assert found.long.start_ns.min(initial=found.end_ns[-1]) >= found.start_ns[0]


def test_a_step_that_lasts_no_time_is_none_and_its_gpu_is_measured():
    """A damaged time may put a step's first kernel where the next step's is."""
    for late in (range(3, 4), range(10)):  # steps whose kernels ran as the next one's did; all of them
        made = Build()
        for step in range(12):
            at = 1_000_000 * step
            made.mark(f"step {step}", at, at + 900_000)
            runs = 1_000_000 * (max(late) + 1 if step in late else step)
            made.kernel(runs + 500_000, runs + 800_000, call=(at + 400_000, at + 410_000), stream=7 + step % 2)
        measures = analyse([made.timeline()]).measures
        again = measures_json.from_json(json.loads(measures_json.dumps(measures, per_step=True)))
        (gpu,) = again.gpus
        assert gpu.steps.count and all(row.end_ns > row.start_ns for row in gpu.steps.rows)
        assert gpu.steps.marked == 12
