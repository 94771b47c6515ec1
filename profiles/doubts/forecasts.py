"""Doubts about predictions for more GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.timeline import Doubt


def point_out_of_line(gpus: int) -> Doubt:
    return Doubt(
        "point-out-of-line",
        f"{gpus} GPUs lose a larger share of their speed than any published table shows for {gpus} GPUs: most likely a "
        "run went wrong",
        f"measure {gpus} again, or record both and compare them",
    )


def over_100_percent(gpus: Sequence[int], smallest: int) -> Doubt:
    return Doubt(
        "over-100-percent",
        f"{', '.join(map(str, gpus))} GPUs train more samples/s, per GPU, than {smallest} did: something slowed the "
        f"run on {smallest} down, and predictions from it are too low",
        f"measure {smallest} again: its input, its clocks, and other programs that ran beside it",
    )


def step_over_100_percent(places: Sequence[str]) -> Doubt:
    """`places`: JSON pointers to the efficiencies above 1."""
    return Doubt(
        "over-100-percent",
        "an efficiency of more than 100 %: something slowed down the run on 1 rank, or the two runs did not train the "
        "same",
        "look at the feed gaps and exposed copies of the run on 1 rank",
        tuple(places),
    )


def beyond_the_tables(gpus: int, largest: int, times: int) -> Doubt:
    return Doubt(
        "beyond-the-tables",
        f"{gpus} GPUs are over {times} times the {largest} GPUs measured, further than published tables reach",
        "measure a larger count, or describe the hosts with --network",
    )


def hosts_assumed(gpus_per_host: int) -> Doubt:
    return Doubt(
        "hosts-assumed",
        f"a host is assumed to have {gpus_per_host} GPUs; beyond them gradients cross a network",
        "give the number of GPUs of a host: --gpus-per-host",
    )


def no_host_crossed(gpus: int, gpus_per_host: int) -> Doubt:
    return Doubt(
        "no-host-crossed",
        f"{gpus} GPUs need several hosts of {gpus_per_host}, but all measured runs fit on one host: the interval is "
        "wide enough for the losses between hosts in published tables",
        f"measure two hosts ({2 * gpus_per_host} GPUs), or describe the network with --network",
    )


def overlap_assumed() -> Doubt:
    return Doubt(
        "overlap-assumed",
        "nobody measured how much of the all-reduce runs during the backward pass: the estimate assumes half of what "
        "is possible",
        "measure on two hosts, and predict from these measurements",
    )
