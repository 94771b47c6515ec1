"""Timed windows on a clock that only moves when told to: every nanosecond is accounted for."""

from __future__ import annotations

from collections.abc import Iterator

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


def turns(clock: Clock, waits_ns: list[int], step_ns: int) -> Iterator[int]:
    for wait_ns in waits_ns:
        clock.work(wait_ns + step_ns)
        yield wait_ns


def test_steps_sum_to_the_window_and_waits_lie_inside_their_steps() -> None:
    clock = Clock()
    taken = turns(clock, [7, 0, 30], 100)
    window = windows.measure(
        lambda: next(taken),
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
    taken = turns(clock, [0, 0], 5)
    window = windows.measure(
        lambda: next(taken),
        steps=2,
        synchronise=lambda: None,
        utc_ns=lambda: next(jumps),
        monotonic_ns=clock.monotonic_ns,
    )
    assert (window.start_ns, window.end_ns) == (9_000_000, 9_000_010)


def test_the_device_is_synchronised_at_the_two_edges_and_nowhere_else() -> None:
    clock, events = Clock(), []
    windows.measure(
        lambda: events.append("step") or 0,
        steps=3,
        synchronise=lambda: events.append("synchronise"),
        utc_ns=clock.utc_ns,
        monotonic_ns=clock.monotonic_ns,
    )
    assert events == ["synchronise", "step", "step", "step", "synchronise"]


def test_ranks_of_one_host_share_a_clock_and_others_are_compared_with_rank_0() -> None:
    instants = [[100, 200, 300], [130, 215, 390], [1_095, 1_205, 1_300]]
    hosts = ["a", "a", "b"]
    assert [windows.clock_offset_ns(instants, rank, hosts) for rank in range(3)] == [0, 0, 1_000]
