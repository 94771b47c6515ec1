"""Doubts about several ranks: the differences of their clocks, ranks without a recording, and which rank was late."""

from __future__ import annotations

from collections.abc import Sequence

from ..ground import numbers
from ..model.timeline import Doubt

# JSON keys of collectives whose values need the recordings of several ranks.
_ACROSS_RANKS = ("skew_ns", "waiting_ns", "transfer_ns", "bus_gb_per_s", "arrived_last_share", "by_turns_ns")
_ALL_RANKS = "give the recordings of all ranks"
_ONE_CLOCK = "record the ranks at the same time, with nsys, on hosts with one clock"


def clocks_unchecked(where: tuple[str, ...]) -> Doubt:
    text = "the recordings' clocks could not be checked against each other: they share too few collectives"
    return Doubt("clock-residual", text, _ONE_CLOCK, where)


def clocks_apart(residual_ns: int, where: tuple[str, ...]) -> Doubt:
    text = (
        f"the clocks of the ranks differ: the same collective ends {residual_ns / 1e3:.0f} µs apart on two ranks. "
        "Times between ranks are no more exact than that"
    )
    return Doubt("clock-residual", text, _ONE_CLOCK, where)


def clocks_shifted(residual_ns: int, where: tuple[str, ...]) -> Doubt:
    text = (
        "the UTC times at which the recordings start are not known, or do not fit the ends of their collectives: the "
        f"clocks were shifted until these ends agree to within {residual_ns / 1e3:.1f} µs"
    )
    return Doubt("clock-residual", text, _ONE_CLOCK, where)


def rank_twice(rank: int, gpus: Sequence[int]) -> Doubt:
    return Doubt(
        "rank-twice",
        f"{len(gpus)} GPUs of different recordings are called rank {rank}: a mark, a file's name or the profiler gives "
        "one of them a wrong rank, or these are recordings of different runs",
        "give the recordings of one run; a mark `rank K of N` or rank<K> in a file's name tells the rank",
        tuple(f"/gpus/{gpu}/rank" for gpu in gpus),
    )


def other_ranks_missing(those: str, shared: Sequence[int]) -> Doubt:
    """`those`: a phrase that says which ranks have a recording. `shared`: GPUs whose collectives were matched with
    other GPUs'."""
    return Doubt(
        "ranks-missing",
        f"{those}: collectives may also wait for ranks that were not recorded, and such a rank may have come last. "
        "The wait may be longer than given, the transfer shorter and the bus bandwidth higher",
        _ALL_RANKS,
        tuple(f"/gpus/{gpu}/collectives" for gpu in shared),
    )


def no_other_rank(those: str, alone: Sequence[int], *, apart: bool) -> Doubt:
    """`apart`: True if all ranks' recordings are given, but no collective is in two of them."""
    return Doubt(
        "ranks-missing",
        f"{those}: it is unknown how long collectives waited for other ranks, and how long they moved data",
        _ONE_CLOCK if apart else _ALL_RANKS,
        tuple(f"/gpus/{gpu}/collectives/{name}" for gpu in alone for name in _ACROSS_RANKS),
    )


def peers_or_launch(share: float, where: str) -> Doubt:
    return Doubt(
        "peers-or-launch",
        f"{numbers.share(share)} of the window the GPU waits for the launch of a collective, and the recording does "
        "not show whether this rank's host or another rank was late: this time counts as idle: launch",
        "record all ranks and give their recordings together, with NVTX ranges (nsys profile --trace=cuda,nvtx)",
        (f"{where}/ledger_ns/idle_launch", f"{where}/ledger_ns/idle_peers"),
    )
