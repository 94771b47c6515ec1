"""What pictures show of the host: each range once, in order, and held once for the GPUs of a process."""

from __future__ import annotations

import numpy as np

from profiles.gpus import gather
from profiles.gpus.host_ranges import OfGpus
from profiles.model.measures import HOST
from tests.made.build import Build


def two_gpus_of_a_process(rng: np.random.Generator) -> tuple[Build, list[tuple[int, int, str, str]]]:
    """Ranges and calls of which many begin together; and what is expected of them, in no order."""
    made, expected = Build(), []
    for device in (0, 1):
        made.kernel(0, 500, device=device)
    for number in range(200):
        start, length = int(rng.integers(0, 40)), int(rng.integers(0, 9))
        add, kind = ((made.mark, "host_range"), (made.api, "host_call"))[number % 2]
        add(f"n{number}", start, start + length)
        expected += [(start, start + length, kind, f"n{number}")] if length else []
    return made, expected


def test_ranges_stand_by_start_and_the_longest_first() -> None:
    for seed in range(10):
        made, expected = two_gpus_of_a_process(np.random.default_rng(seed))
        timelines = [made.timeline()]
        host = OfGpus(timelines, [0]).of(gather.gather(timelines)[0])
        rows = zip(host.start_ns.tolist(), host.end_ns.tolist(), host.kind.tolist(), host.name.tolist(), strict=True)
        found = [(start, end, HOST[kind], host.names[name]) for start, end, kind, name in rows]
        assert [one[:2] for one in found] == sorted((one[:2] for one in expected), key=lambda one: (one[0], -one[1]))
        assert sorted(found) == sorted(expected)


def test_gpus_of_one_process_hold_them_once() -> None:
    made, _ = two_gpus_of_a_process(np.random.default_rng(0))
    timelines = [made.timeline()]
    hosts, gpus = OfGpus(timelines, [0]), gather.gather(timelines)
    assert len(gpus) == 2
    assert hosts.of(gpus[0]) is hosts.of(gpus[1])
