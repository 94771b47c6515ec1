"""Timed windows on a clock that only moves when told to: every nanosecond is accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

from harness.training import windows


class Clock:
    """Moves when somebody works."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def work(self, ns: int) -> None:
        self.now_ns += ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def utc_ns(self) -> int:
        return 5_000_000 + self.now_ns


def batches(clock: Clock, costs_ns: list[int]) -> Iterator[int]:
    for number, cost in enumerate(costs_ns):
        clock.work(cost)
        yield number


def test_steps_sum_to_the_window_and_waits_lie_inside_their_steps() -> None:
    clock = Clock()
    window = windows.measure(
        lambda batch: clock.work(100),
        batches(clock, [7, 0, 30]),
        steps=3,
        synchronise=lambda: clock.work(11),
        utc_ns=clock.utc_ns,
        monotonic_ns=clock.monotonic_ns,
    )
    # The first synchronisation is before the window; the last one is in the last step.
    assert window.step_ns == [107, 100, 141]
    assert window.input_wait_ns == [7, 0, 30]
    assert window.start_ns == 5_000_000 + 1_000 + 11
    assert window.end_ns - window.start_ns == 348


def test_a_clock_set_during_the_window_does_not_stretch_it() -> None:
    clock = Clock()
    jumps = iter([9_000_000, 1])
    window = windows.measure(
        lambda batch: clock.work(5),
        count(),
        steps=2,
        synchronise=lambda: None,
        utc_ns=lambda: next(jumps),
        monotonic_ns=clock.monotonic_ns,
    )
    assert (window.start_ns, window.end_ns) == (9_000_000, 9_000_010)


def test_the_device_is_synchronised_at_the_two_edges_and_nowhere_else() -> None:
    clock, events = Clock(), []
    windows.measure(
        lambda batch: events.append("step"),
        count(),
        steps=3,
        synchronise=lambda: events.append("synchronise"),
        utc_ns=clock.utc_ns,
        monotonic_ns=clock.monotonic_ns,
    )
    assert events == ["synchronise", "step", "step", "step", "synchronise"]


def test_marks_enclose_each_wait_in_its_step() -> None:
    clock, events = Clock(), []

    class Recorder:
        def step(self, number: int) -> AbstractContextManager[None]:
            return self.mark(f"step {number}")

        def wait_input(self) -> AbstractContextManager[None]:
            return self.mark("wait input")

        @contextmanager
        def mark(self, text: str) -> Iterator[None]:
            events.append(f"<{text}>")
            yield
            events.append(f"</{text}>")

    windows.measure(
        lambda batch: events.append("train"),
        count(),
        steps=1,
        synchronise=lambda: None,
        utc_ns=clock.utc_ns,
        monotonic_ns=clock.monotonic_ns,
        first_number=10,
        marks=Recorder(),
    )
    assert events == ["<step 10>", "<wait input>", "</wait input>", "train", "</step 10>"]


def test_ranks_of_one_host_share_a_clock_and_others_are_compared_with_rank_0() -> None:
    instants = [[100, 200, 300], [130, 215, 390], [1_095, 1_205, 1_300]]
    hosts = ["a", "a", "b"]
    assert [windows.clock_offset_ns(instants, rank, hosts) for rank in range(3)] == [0, 0, 1_000]
