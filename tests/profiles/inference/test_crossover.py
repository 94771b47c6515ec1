"""Where the GPU becomes faster: hand-made times, every batch measured one by one, and any noise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from profiles.inference import crossover, parts
from profiles.inference.records import Call
from tests.figures import figures

US = 1000


def calls(device: str, times_ns: dict[int, int]) -> list[Call]:
    return [Call("m", 202, device, batch, 10, ns, ns) for batch, ns in times_ns.items()]


def straight(fixed_ns: int, per_sample_ns: int, batches=(1, 10, 100, 1000)) -> dict[int, int]:
    return {batch: fixed_ns + per_sample_ns * batch for batch in batches}


def test_a_dense_2_on_100_samples_is_faster_on_the_cpu_and_the_report_says_why() -> None:
    cpu, gpu = calls("CPU", straight(60 * US, 100)), calls("GPU", straight(210 * US, 5))
    gpu[2] = replace(gpu[2], launches_ns=170_500, copies_ns=36_000, compute_ns=4_000, kernels=14)
    found = crossover.crossover(cpu, gpu)
    assert (found.cpu_until, found.gpu_from) == (1000, None)
    assert figures(found.text)[0] == "1000"
    found = crossover.crossover(calls("CPU", straight(60 * US, 1000)), gpu)
    assert (found.cpu_until, found.gpu_from) == (100, 1000)
    parts, line = found.text.split("A call costs ")
    assert "With batches of 100 " in parts and {"210.5 µs", "14", "170.5 µs", "36.00 µs"} <= set(figures(parts))
    # Before the first sample and for each, of either device.
    assert figures(line)[:4] == ["210.0 µs", "5 ns", "60.00 µs", "1.000 µs"]


def test_a_gpu_that_always_wins_and_parts_that_are_not_known_are_said() -> None:
    gpu = [replace(call, why="no recording of it: no driver") for call in calls("GPU", {1: 10, 8: 10})]
    found = crossover.crossover(calls("CPU", {1: 20, 8: 50}), gpu)
    assert (found.cpu_until, found.gpu_from) == (None, 1)
    assert "no recording of it: no driver" in found.text


@given(times=some.dictionaries(some.integers(1, 40), some.tuples(some.integers(1, 9), some.integers(1, 9)), min_size=1))
def test_from_the_crossover_on_the_gpu_is_faster_at_every_batch_and_at_the_one_before_it_is_not(
    times: dict[int, tuple[int, int]],
) -> None:
    cpu = calls("CPU", {batch: pair[0] for batch, pair in times.items()})
    gpu = calls("GPU", {batch: pair[1] for batch, pair in times.items()})
    until, beyond = crossover.between(cpu, gpu)
    for batch, (ours, theirs) in times.items():
        if beyond is not None and batch >= beyond:
            assert theirs < ours
        if batch == until:
            assert theirs >= ours
    assert (until is None) == all(theirs < ours for ours, theirs in times.values())
    assert beyond is None or until is None or not [batch for batch in times if until < batch < beyond]


@given(
    some.integers(1, 500),
    some.integers(0, 60),
    some.integers(1, 60),
    some.integers(0, 300),
    some.sampled_from([0, 0.1]),
)
def test_halving_finds_what_trying_every_batch_finds(cpu: int, slow: int, gpu_more: int, fixed: int, share: float):
    """Straight lines, of which the GPU's begins higher and rises less: they cross once, or not within 1000."""

    def faster(batch: int) -> bool:
        return fixed + cpu + slow * batch < cpu + (slow + gpu_more) * batch

    every = [batch for batch in range(1, 1001) if faster(batch)]
    if not every or every[0] == 1:
        return
    tried: list[int] = []
    until, beyond = crossover.narrowed(1, 1000, lambda batch: (tried.append(batch), faster(batch))[1], share=share)
    assert until < every[0] <= beyond
    assert beyond - until <= max(1, share * until)
    assert len(tried) <= 10  # of 1000


@given(some.lists(some.booleans(), max_size=60))
def test_halving_of_noisy_measurements_ends_where_the_one_really_measured_faster(noisy: list[bool]) -> None:
    """Times of real calls cross several times where they are close; each batch is measured once."""
    measured = [False, *noisy, True]
    tried: list[int] = []
    until, beyond = crossover.narrowed(
        1, len(measured), lambda batch: (tried.append(batch), measured[batch - 1])[1], share=0
    )
    assert beyond == until + 1
    assert measured[beyond - 1] and not measured[until - 1]
    assert len(set(tried)) == len(tried) <= len(measured).bit_length()


def test_a_line_goes_through_the_smallest_and_the_largest_batch() -> None:
    found = crossover.line(calls("CPU", straight(300, 7)))
    assert found == crossover.Line(300.0, 7.0)
    assert crossover.line(calls("CPU", {5: 10})) is None
    assert crossover.line(calls("CPU", {1: 50, 9: 40})) == crossover.Line(50.0, 0.0)  # noise gives no negative cost


class Recorded:
    """What `parts` reads of a GPU's measures."""

    def __init__(self, kernels: int, **ledger: int | None) -> None:
        self.kernels = type("Kernels", (), {"count": kernels})()
        zero = dict.fromkeys((*parts.COPIES, *parts.COMPUTE), 0)
        self.ledger_ns = zero | ledger


def test_the_parts_of_a_call_sum_to_the_call() -> None:
    call = Call("m", 1, "GPU", 8, 10, 100 * US, 110 * US)
    found = parts.of_call(call, Recorded(60, compute=600 * US, h2d=300 * US, d2h=100 * US), 20)
    assert (found.compute_ns, found.copies_ns, found.launches_ns, found.kernels) == (30 * US, 20 * US, 50 * US, 3)
    assert found.compute_ns + found.copies_ns + found.launches_ns == found.call_ns


@pytest.mark.parametrize(
    ("ledger", "why"),
    [({"compute": 3000 * US}, "the recorded calls worked longer"), ({"h2d": None}, "copies")],
)
def test_parts_that_cannot_be_known_are_none_with_a_reason(ledger: dict[str, int | None], why: str) -> None:
    found = parts.of_call(Call("m", 1, "GPU", 8, 10, 100 * US, 110 * US), Recorded(60, **ledger), 20)
    assert found.launches_ns is found.copies_ns is found.compute_ns is None
    assert why in found.why
