"""Each cause of idle, by the smallest timeline that shows it; all checked by plain loops too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiles.gpus.gather import gather
from profiles.ledger.account import account
from profiles.ledger.window import Window
from profiles.steps.found import FoundSteps
from tests.made.bruteforce import BruteForce
from tests.made.build import Build

NO_STEPS = FoundSteps(refused="none")


def causes_of(made: Build, steps: FoundSteps = NO_STEPS) -> dict[str, int]:
    """Cause -> ns over the capture, those that are 0 left out."""
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    window = (int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max()))
    books = account([timeline], [0], gpu, steps, Window(*window))
    found = {name[5:]: ns for name, ns in books.ledger_ns.items() if ns and name.startswith("idle_")}
    expected = BruteForce([timeline], [(0, 0)], steps, window).ledger()
    assert found == {name[5:]: ns for name, ns in expected.items() if ns and name.startswith("idle_")}
    return found


def steps_at(starts: list[int], last_ends: list[int]) -> FoundSteps:
    start, last = np.array(starts, np.int64), np.array(last_ends, np.int64)
    return FoundSteps(
        source="marks",
        start_ns=start[1:-1],
        end_ns=start[2:],
        step_number=np.arange(1, len(starts) - 1),
        last_kernel_end_ns=last[1:-1],
        prev_last_kernel_end_ns=last[:-2],
        all_start_ns=start,
        all_last_kernel_end_ns=last,
    )


@pytest.mark.parametrize("returned, cause", [(201, "launch"), (200, "turnaround")])
def test_a_kernel_whose_launch_had_not_returned_was_launched_late(returned, cause):
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.kernel(300, 400, call=(20, returned))
    assert causes_of(made) == {cause: 100}


@pytest.mark.parametrize("began, cause", [(201, "launch"), (200, "turnaround")])
def test_a_copy_is_launched_late_when_its_call_had_not_begun(began, cause):
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.copy("p2p", 300, 400, call=(began, 410))
    assert causes_of(made) == {cause: 100}


@pytest.mark.parametrize("gap_ns, cause", [(20_000, "turnaround"), (20_001, "wait")])
def test_a_hand_over_on_one_stream_takes_at_most_20_us(gap_ns, cause):
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.kernel(200 + gap_ns, 30_000, call=(20, 30))
    assert causes_of(made) == {cause: gap_ns}


def test_a_hand_over_counts_from_the_predecessor_on_the_same_stream():
    made = Build()
    made.kernel(100, 200, call=(0, 10), stream=1)
    made.kernel(200, 20_000, call=(11, 12), stream=2)
    made.kernel(20_300, 20_400, call=(20, 30), stream=1)
    assert causes_of(made) == {"wait": 300}


def test_the_same_stream_of_another_process_is_another_stream():
    made = Build()
    made.kernel(100, 200, call=(0, 10), pid=1)
    made.kernel(300, 400, call=(20, 30), pid=2)
    assert causes_of(made) == {"wait": 100}


@pytest.mark.parametrize(
    "call, cause",
    [
        (("cudaStreamSynchronize_v3020", 50, 220), "sync"),
        (("cuCtxSynchronize", 50, 230), "sync"),
        (("cudaEventSynchronize", 200, 230), "sync"),
        (("cudaMemcpy_v3020", 50, 220), "sync"),
        (("cudaThreadSynchronize_v3020", 50, 220), "sync"),  # CUDA's name before version 4, which still runs
        (("cuCtxSynchronize_v2", 50, 220), "sync"),
        (("cuStreamSynchronize_ptsz", 50, 220), "sync"),
        (("cudaMemcpy2D_ptds_v7000", 50, 220), "sync"),
        (("cuMemcpyHtoD_v2_ptds", 50, 220), "sync"),
        (("hipDeviceSynchronize", 50, 220), "sync"),
        (("hipStreamSynchronize_spt", 50, 220), "sync"),
        (("hipMemcpyWithStream", 50, 220), "sync"),
        (("cudaMemcpyAsync_ptsz_v7000", 50, 220), "launch"),
        (("cudaGraphAddMemcpyNode_v10000", 50, 220), "launch"),
        (("cudaDeviceSynchronize_v3020", 50, 231), "launch"),  # returned after the launch began
        (("cudaDeviceSynchronize_v3020", 50, 200), "launch"),  # had returned when the GPU ran dry
        (("cudaDeviceSynchronize_v3020", 201, 220), "launch"),  # began after it
        (("cuEventQuery", 50, 220), "launch"),
        (("cudaMemcpyAsync_v3020", 50, 220), "launch"),
        (("cuMemcpyDtoHAsync_v2", 50, 220), "launch"),
    ],
)
def test_a_synchronising_call_under_way_when_the_gpu_ran_dry_explains_a_late_launch(call, cause):
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.api(*call, tid=9)
    made.kernel(300, 400, call=(230, 240))
    assert causes_of(made) == {cause: 100}


def test_a_synchronising_call_of_another_process_explains_nothing():
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.api("cudaDeviceSynchronize_v3020", 50, 220, pid=2)
    made.kernel(300, 400, call=(230, 240))
    assert causes_of(made) == {"launch": 100}


def test_the_calls_of_another_recording_are_brought_on_the_gpus_clock():
    """Two processes of one GPU, recorded apart; the second one's clock is 1 000 ns behind."""
    first, second = Build(pid=1, path="1.sqlite"), Build(pid=2, path="2.sqlite")
    for made in (first, second):
        made.device(0, uuid="GPU-0")
    first.kernel(100, 200, call=(0, 10))
    second.api("cudaStreamSynchronize_v3020", 50 - 1_000, 220 - 1_000)
    second.kernel(300 - 1_000, 400 - 1_000, call=(230 - 1_000, 240 - 1_000))
    timelines, shifts = [first.timeline(), second.timeline()], [0, 1_000]
    (gpu,) = gather(timelines, shifts)
    books = account(timelines, shifts, gpu, NO_STEPS, Window(100, 400))
    assert {name: ns for name, ns in books.ledger_ns.items() if ns} == {"compute": 200, "idle_sync": 100}


def test_outside_batch_gaps_a_late_fetch_is_a_synchronisation():
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.copy("d2h", 300, 310, call=(250, 320))
    assert causes_of(made) == {"sync": 100}


def test_in_a_batch_gap_what_is_late_up_to_the_last_fetch_is_a_synchronisation():
    made = Build()
    made.kernel(0, 200, call=(-9, -8))
    made.memset(300, 310, call=(250, 260))  # before the fetch
    made.copy("d2h", 400, 410, call=(350, 420))
    made.kernel(500, 600, call=(450, 460))  # after it
    made.kernel(900, 950, call=(850, 860))
    steps = steps_at([0, 500, 900], [200, 600, 950])
    assert causes_of(made, steps) == {"sync": 100 + 90, "launch": 90 + 300}


def test_an_operation_without_a_call_ends_an_idle_time_of_unknown_cause():
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.kernel(300, 400)
    assert causes_of(made) == {"unknown": 100}


def test_an_operation_of_no_length_ends_no_gap():
    made = Build()
    made.kernel(100, 200, call=(0, 10))
    made.memset(250, 250, call=(240, 245))
    made.kernel(300, 400, call=(20, 30))
    assert causes_of(made) == {"turnaround": 100}


def fed_training(call_began: int) -> tuple[Build, FoundSteps]:
    """Four steps with one input copy each, for the step about to start; idle from 60 to 75 of every 100 ns."""
    made = Build()
    made.mark("#edge_name=edge_7_IteratorGetNext#", 0, 1)
    for at in range(0, 400, 100):
        made.copy("h2d", at - 25, at - 10, 4096, call=(at + call_began, at - 10), stream=2)
        made.kernel(at, at + 60, call=(at - 70, at - 65))
    return made, steps_at([0, 100, 200, 300], [60, 160, 260, 360])


def test_an_idle_time_ended_by_the_steps_input_copy_called_late_is_a_feed_gap():
    made, steps = fed_training(-39)
    assert causes_of(made, steps) == {"feed": 3 * 15, "wait": 10, "turnaround": 3 * 10}


def test_a_copy_called_before_the_gpu_ran_dry_makes_no_feed_gap():
    made, steps = fed_training(-40)
    assert "feed" not in causes_of(made, steps)


def test_with_input_ranges_only_the_time_in_them_and_after_the_copys_call_is_feed():
    made, steps = fed_training(-30)
    for at in range(100, 400, 100):
        made.mark("wait input", at - 38, at - 34)
    assert causes_of(made, steps) == {"feed": 3 * (4 + 5), "launch": 3 * 6, "wait": 10, "turnaround": 3 * 10}


@pytest.mark.parametrize("early, fed", [(0, True), (1, False)])
def test_without_iterator_ranges_copies_that_outnumber_the_steps_feed_them_in_order(early, fed):
    """With a batch copied ahead, the copy in a batch gap is for the step after next: no feed gap."""
    made = Build()
    for batch in range(5 + early):
        at = (batch - early) * 100
        made.copy("h2d", at - 25, at - 10, 4096, call=(at - 39, at - 10), stream=2)
    for at in range(0, 400, 100):
        made.kernel(at, at + 60, call=(at - 70, at - 65))
    steps = steps_at([0, 100, 200, 300], [60, 160, 260, 360])
    assert ("feed" in causes_of(made, steps)) == fed


@pytest.mark.parametrize("pause, certain", [(0, True), (1, True), (2, False)])
def test_copies_that_fall_behind_by_more_than_one_step_feed_nobody_knows_whom(pause, certain):
    """Two batches ahead, then `pause` steps without a copy, then caught up at the end."""
    made = Build()
    count = 12
    for batch in range(count + 2):
        at = (batch - 2 + (pause if 5 <= batch < 5 + 4 else 0)) * 100 + (batch >= 9)  # two at one time would be one
        made.copy("h2d", at + 10, at + 30, 4096, call=(at + 5, at + 30), stream=2)
    for at in range(0, count * 100, 100):
        made.kernel(at, at + 60, call=(at - 70, at - 65))
    steps = steps_at([at * 100 for at in range(count)], [at * 100 + 60 for at in range(count)])
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    window = (0, (count - 1) * 100)
    books = account([timeline], [0], gpu, steps, Window(*window))
    brute = BruteForce([timeline], [(0, 0)], steps, window)
    assert books.inputs is not None and brute.inputs is not None
    assert books.inputs.certain == brute.inputs[2] == certain


def test_copies_as_many_as_steps_without_ranges_feed_nobody_knows_whom():
    made = Build()
    for at in range(0, 400, 100):
        made.copy("h2d", at - 25, at - 10, 4096, call=(at - 39, at - 10), stream=2)
        made.kernel(at, at + 60, call=(at - 70, at - 65))
    steps = steps_at([0, 100, 200, 300], [60, 160, 260, 360])
    assert causes_of(made, steps) == {"launch": 3 * 15, "wait": 10, "turnaround": 3 * 10}
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    books = account([timeline], [0], gpu, steps, Window(0, 300))
    assert books.inputs is not None and not books.inputs.certain and books.ledger_ns["idle_feed"] is None


def pinned_training(batch_of_copy: dict[int, int], called: int, thread: int = 9) -> tuple[Build, FoundSteps]:
    """Four steps, called 10 to 13, of 60 in every 100 ns; before each a copy and one of its labels from a feed's own
    thread, the copy before step `at` in the range of the batch that `batch_of_copy` tells."""
    made = Build()
    for step in range(10, 14):
        at = (step - 10) * 100
        made.mark("wait input", at - 70, at - 5, tid=1)
        made.copy("h2d", at - 25, at - 12, 1 << 20, call=(at + called, at + called + 1), tid=9, stream=2)
        made.copy("h2d", at - 12, at - 10, 2048, call=(at + called + 2, at + called + 3), tid=9, stream=2)
        made.mark(f"batch {batch_of_copy[step]}", at + called, at + called + 4, tid=thread)
        made.kernel(at, at + 60, call=(at - 8, at - 2))
    steps = steps_at([0, 100, 200, 300], [60, 160, 260, 360])
    return made, replace(steps, all_number=np.arange(10, 14))


def test_a_late_copy_of_the_batch_of_the_next_step_is_a_feed_gap():
    made, steps = pinned_training({step: step for step in range(10, 14)}, called=-30)
    # From 60 to 75 of every 100 ns the GPU waits for the copy; what ends the last 10 is the launch, of a thread that
    # waits for input for 5 of them.
    assert causes_of(made, steps) == {"feed": 3 * 15 + 4 * 5, "launch": 4 * 5}


def test_a_copy_of_a_later_steps_batch_ends_an_idle_time_that_is_no_feed_gap():
    made, steps = pinned_training({step: step + 1 for step in range(10, 14)}, called=-30)
    assert causes_of(made, steps) == {"feed": 4 * 5, "launch": 3 * 15 + 4 * 5}


def test_a_copy_called_before_the_gpu_ran_dry_is_no_feed_gap_though_its_batch_is_the_next():
    made, steps = pinned_training({step: step for step in range(10, 14)}, called=-45)
    assert causes_of(made, steps) == {"turnaround": 3 * 15, "feed": 4 * 5, "launch": 4 * 5}


def test_a_range_of_another_thread_says_nothing_of_a_copy():
    made, steps = pinned_training({step: step for step in range(10, 14)}, called=-30, thread=8)
    assert causes_of(made, steps)["feed"] == 4 * 5  # what the launching thread waits for


def test_a_copy_whose_range_was_lost_is_numbered_from_the_others():
    made, steps = pinned_training({step: step for step in range(10, 14)}, called=-30)
    made.rows["marks"] = [row for row in made.rows["marks"] if row["name"] != "batch 11"]
    assert causes_of(made, steps) == {"feed": 3 * 15 + 4 * 5, "launch": 4 * 5}


def test_labels_in_the_range_are_input_copies_and_what_lies_outside_is_not():
    made, steps = pinned_training({step: step for step in range(10, 14)}, called=-30)
    for at in range(0, 400, 100):
        made.copy("h2d", at + 20, at + 25, 1 << 16, call=(at + 10, at + 11), tid=9, stream=3)
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    books = account([timeline], [0], gpu, steps, Window(0, 300))
    assert books.inputs is not None and books.inputs.certain
    assert set(books.operations.bytes[books.inputs.is_input].tolist()) == {1 << 20, 2048}


def test_ranges_of_batches_that_no_step_has_the_number_of_say_nothing():
    made, steps = pinned_training({step: step + 1_000 for step in range(10, 14)}, called=-30)
    (gpu,) = gather([made.timeline()])
    books = account([made.timeline()], [0], gpu, steps, Window(0, 300))
    assert books.inputs is not None and not books.inputs.certain


def test_without_the_numbers_of_marks_ranges_of_batches_say_nothing():
    made, steps = pinned_training({step: step for step in range(10, 14)}, called=-30)
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    books = account([timeline], [0], gpu, replace(steps, all_number=np.empty(0, np.int64)), Window(0, 300))
    assert books.inputs is not None and not books.inputs.certain


def test_without_api_rows_no_cause_is_known():
    made = Build()
    made.kernel(100, 200)
    made.kernel(300, 400)
    timeline = made.timeline(known=frozenset({"kernels", "copies", "memsets"}))
    (gpu,) = gather([timeline])
    books = account([timeline], [0], gpu, NO_STEPS, Window(100, 400))
    idle = {name: ns for name, ns in books.ledger_ns.items() if name.startswith("idle_")}
    assert idle.pop("idle_unknown") == 100 and set(idle.values()) == {None}


def test_calls_on_a_clock_far_from_the_gpus_count_as_unknown():
    made = Build()
    for at in range(0, 5000, 100):
        made.kernel(at, at + 60, call=(at - 414_000_000_000, at - 413_999_999_990))
    assert causes_of_off_clock(made) == {"unknown": 49 * 40}


def causes_of_off_clock(made: Build) -> dict[str, int]:
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    assert gpu.off_clock == (0,)
    books = account([timeline], [0], gpu, NO_STEPS, Window(0, 4960))
    return {name[5:]: ns for name, ns in books.ledger_ns.items() if ns and name.startswith("idle_")}
