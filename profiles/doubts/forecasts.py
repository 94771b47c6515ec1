"""Doubts about what more GPUs would do."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.timeline import Doubt


def point_out_of_line(gpus: int) -> Doubt:
    return Doubt(
        "point-out-of-line",
        f"{gpus} GPUs lose more than any published table shows for as many: most likely a run went wrong",
        f"measure {gpus} again, or record both and compare them",
    )


def over_100_percent(gpus: Sequence[int], smallest: int) -> Doubt:
    return Doubt(
        "over-100-percent",
        f"{', '.join(map(str, gpus))} GPUs do more, per GPU, than {smallest} did: something held the smallest "
        "size back, and what is predicted from it is too little",
        f"measure {smallest} again: its input, its clocks, what else ran beside it",
    )


def beyond_the_tables(gpus: int, largest: int, times: int) -> Doubt:
    return Doubt(
        "beyond-the-tables",
        f"{gpus} GPUs are over {times} times the {largest} measured, further than any table tells",
        "measure a larger count, or describe the hosts with --network",
    )


def overlap_assumed() -> Doubt:
    return Doubt(
        "overlap-assumed",
        "how much of the all-reduce backward hides is not known: the estimate takes half of what it could",
        "measure on two hosts, and predict from that",
    )
