"""The finding on N ranks that are less than N times as fast as one rank. Its advice follows the largest loss in the run
records; no recording is needed. profiles.explaining.without_exchange measures the losses (exchange, compute, input
wait, idle time on GPUs) in ns per step. docs/reference/findings.md has the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ground import numbers
from ..model.findings import Finding
from ..runs.records import Cell


def find(cause: str, ns: int, step_ns: int, cell: Cell) -> Finding:
    """The finding for the largest loss, whose name is `cause`. The loss takes `ns` of a step of `cell`, and the step
    takes `step_ns`."""
    found = RULES[cause](cell, ns)
    found.cost_ns_per_step, found.at_most_gain = ns, step_ns / (step_ns - ns) - 1
    found.saved_ns = {cause: ns}
    return found


def finding(code: str, *, text: str, change: str, evidence: Mapping[str, Any], refuted_by: str) -> Finding:
    """Make a finding that concerns all ranks and has no price yet."""
    return Finding(
        code=code,
        gpu=None,
        cost_ns_per_step=None,
        at_most_gain=None,
        text=text,
        change=change,
        evidence=dict(evidence),
        refuted_by=refuted_by,
    )


def _exchange(cell: Cell, ns: int) -> Finding:
    changes = [f"exchange less often (--aggregate {2 * cell.aggregate})", "more samples per step (--per-rank-batch)"]
    if cell.sends_float32:
        changes.append("send half of the bytes (--compression fp16) if ranks are on several hosts")
    return finding(
        "all-reduce-exposed",
        text=f"the exchange of gradients, and waiting for the other ranks in it, adds {numbers.duration(ns)} to a step",
        change="; ".join(changes),
        evidence={},
        refuted_by="a launch with --strategy independent is no faster",
    )


def _cores(cell: Cell, ns: int) -> Finding:
    return finding(
        "cores-shared",
        text=f"a rank computes for {numbers.duration(ns)} longer while {cell.ranks - 1} more run beside it, even "
        "without any exchange: the ranks of a host share its cores, caches and memory",
        change="give each rank its own cores: fewer ranks per host, more hosts, or a GPU each",
        evidence={},
        refuted_by="as many ranks, each on a host of its own, are no faster",
    )


def _input(cell: Cell, ns: int) -> Finding:
    return finding(
        "input-pipeline-slow",
        text=f"a rank waits {numbers.duration(ns)} longer for its batch than one rank alone does",
        change="make batches with less work (--input-dtype uint8, records that are decoded beforehand), and ahead of "
        "the step (--feeds prefetch)",
        evidence={},
        refuted_by="--feeds resident, which copies no batch in a step, is no faster",
    )


def _host(cell: Cell, ns: int) -> Finding:
    return finding(
        "launch-bound",
        text=f"the GPU waits {numbers.duration(ns)} longer in a step than on one rank: "
        "the host waits for the gradient exchange before it launches the update",
        change=f"more samples per step (--per-rank-batch {2 * cell.per_rank_batch}), so that the GPU still computes "
        "meanwhile",
        evidence={},
        refuted_by="with a larger batch the step grows in proportion to the batch",
    )


RULES: dict[str, Callable[[Cell, int], Finding]] = {
    "exchange": _exchange,
    "compute": _cores,
    "input_wait": _input,
    "idle": _host,
}
