"""The GPU's hand-over from one kernel to the next: hand-built gaps, and plain loops over real recordings."""

from __future__ import annotations

import statistics

import pytest

from profiles import measure, read
from profiles.gpus.gather import gather
from profiles.ledger.account import account
from profiles.ledger.window import Window
from profiles.metrics.between_kernels import hand_over_ns
from profiles.steps.find import find
from tests.made.bruteforce import BruteForce
from tests.made.build import Build
from tests.recordings import DATA

US = 1_000


def test_gaps_before_graph_nodes_and_before_other_kernels_are_told_apart() -> None:
    made, now = Build(), 1000 * US
    # Ten nodes 100 ns apart, nine kernels 2 us apart; then a late launch and a copy, whose gaps are none of these.
    for number in range(10):
        made.kernel(now, now + 5 * US, call=(now - 500 * US, now - 499 * US), graph_node=number + 1)
        now += 5 * US + 100
    for _ in range(9):
        now += 2 * US - 100
        made.kernel(now, now + 5 * US, call=(now - 500 * US, now - 499 * US))
        now += 5 * US + 100
    made.kernel(now + 50 * US, now + 60 * US, call=(now + 40 * US, now + 49 * US))
    made.copy("h2d", now + 61 * US, now + 62 * US, call=(now, now + US))
    (gpu,) = measure([made.timeline()]).gpus
    assert gpu.hand_over_ns == {
        "in_graphs": {"count": 9, "p50_ns": 100},
        "launched": {"count": 9, "p50_ns": 2 * US},
    }


def test_without_such_gaps_it_is_unknown() -> None:
    made = Build()
    made.kernel(100, 900, call=(10, 20))
    assert measure([made.timeline()]).gpus[0].hand_over_ns is None


@pytest.mark.parametrize(
    "name",
    ["vgg16-2gpu-pinned.rank0", "resnet50-2gpu-pinned.rank1", "resnet50-2gpu-in-stream.rank1", "gru-1gpu.rank0"],
)
def test_of_real_recordings_it_is_that_of_plain_loops(name: str) -> None:
    timeline = read(DATA / f"{name}.sqlite.xz")
    (gpu,) = gather([timeline])
    steps = find(gpu, [timeline], [0])
    window = (int(steps.start_ns[0]), int(steps.end_ns[-1]))
    found = hand_over_ns(account([timeline], [0], gpu, steps, Window(*window)))
    kernels = timeline.kernels
    is_node = dict(zip(kernels["start_ns"].tolist(), (kernels["graph_node"] != 0).tolist(), strict=True))
    gaps: dict[str, list[int]] = {"in_graphs": [], "launched": []}
    for start, end, owner in BruteForce([timeline], list(gpu.places), steps, window).pieces:
        if owner == "idle_turnaround" and end in is_node:
            gaps["in_graphs" if is_node[end] else "launched"].append(end - start)
    assert found == {
        kind: {"count": len(mine), "p50_ns": statistics.median_low(mine)} for kind, mine in gaps.items() if mine
    }
