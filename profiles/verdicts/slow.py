"""Findings on GPUs, hosts and links that are slower than others. Each gives the kind of slow work and the first slow
step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from ..ground import numbers
from ..ground.numbers import share as percent
from ..ground.stats import lasting
from ..model.findings import Finding
from ..model.measures import Measures
from .case import OTHER_LADDER, Case
from .outliers import LEAST_STEPS, Slower, Whose, far, slower, whose

SLOWER = 1.05  # A GPU is slow if its compute time per step is this many times the others' median.
KERNELS_ALIKE = 1.01  # cuDNN may choose algorithms with 3,810 kernels on one GPU and 3,813 on another.
ALIKE = 0.1  # Compared GPUs may differ by this in the share of bytes from pageable memory.
THAN_BEFORE = 1.1  # Ratio to earlier steps. The first steps on a cold GPU are some 3 % faster anyway.
SLOWER_LINK = 1.25  # Copy rates vary by less with the host's load and with traffic on a switch.
WAITS_MORE = 1.5  # On a slow host, GPUs idle for this many times the other GPUs' median.
# All kernel groups are equally slow if their excess differs by at most the share _LIKE_ALL of the total excess. Groups
# below the share _WORTH_SHARE of the compute time are not compared.
_LIKE_ALL, _WORTH_SHARE = 0.5, 0.05
CLOCK = ", all kinds of kernels alike: its clock"
UNEVEN = (
    "give each rank equal work where lengths of sequences, tokens per expert or samples differ: the same kernels "
    "then take longer; else "
)
WAITS = {
    "idle_feed": ("wait for their input", "the host's disk, network to the data, CPU load and clock"),
    "idle_launch": ("wait for a launch", "the host's CPU load and clock, and its other processes"),
    "idle_sync": ("wait for their host", "the host's CPU load and clock, and its other processes"),
}


def slow_gpu(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """Findings on GPUs that take longer for the same kernels, because of a lower clock, heat or another process. If the
    run has many GPUs, one finding covers all slow GPUs and has the numbers of the slowest GPU."""
    counts = [_kernels(case) for case in cases]
    if len(cases) < 2 or max(counts) > KERNELS_ALIKE * min(counts):
        return []
    slow = slower(cases, "compute", SLOWER)
    together = [slow] if measures.many and slow else [[one] for one in slow]
    return [finding for some in together if (finding := _slow_gpu(some, cases, measures)) is not None]


def _slow_gpu(slow: Sequence[Slower], cases: Sequence[Case], measures: Measures) -> Finding | None:
    worst = max(slow, key=lambda one: one.ns)
    of = whose([one.case for one in slow], cases, measures)
    kind = _kind(worst, cases)
    alike = "as many" if len({_kernels(case) for case in cases}) == 1 else "nearly as many"
    # With a lower clock all kinds of kernels take longer by the same ratio. With more work on a rank, the ratios
    # differ.
    uneven = worst.case.cell is None and worst.since is None and not kind.startswith(CLOCK)
    change = (UNEVEN if uneven else "") + {
        "host": "all GPUs of a host slow down by its power or its cooling: compare clocks, power caps and temperatures "
        "with another host's (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE)",
    }.get(
        of.scope,
        "compare clocks, power caps and temperatures (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE); move other "
        "processes on this GPU to another one",
    )
    return _priced(
        "slow-gpu",
        slow,
        of,
        {"compute": worst.lost_ns},
        text=f"{of.name} computes {percent(worst.ns / worst.others_ns - 1)} longer {worst.case.each} than the others, "
        f"with {alike} kernels{_since(worst)}{kind}",
        change=change,
        evidence={"compute_ns_per_step": int(worst.ns), "others_median_ns_per_step": int(worst.others_ns)},
        refuted_by="the same rank is as slow on another GPU",
    )


def _kind(worst: Slower, cases: Sequence[Case]) -> str:
    """A clause on the slow kernels: all groups are equally slow, as with a lower clock, or one group is slowest."""
    groups = {
        name: ns / worst.case.steps for name in worst.case.gpu.kernels.groups if (ns := worst.case.group(name)[1])
    }
    others = [case for case in cases if case is not worst.case]
    total = worst.ns / worst.others_ns - 1
    excess = {
        name: ns / usual - 1
        for name, ns in groups.items()
        if name != "collective"
        and ns >= _WORTH_SHARE * worst.ns
        and (usual := median(case.group(name)[1] / case.steps for case in others))
    }
    if len(excess) < 2 or worst.since is not None:
        return ""
    if all(abs(one - total) <= _LIKE_ALL * total for one in excess.values()):
        return f"{CLOCK}, or other work on it"
    most = max(excess, key=lambda name: groups[name] * excess[name] / (1 + excess[name]))
    return f", above all in {most.replace('_', ' ')} kernels ({percent(excess[most])})"


def slows_down(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """A finding on GPUs whose kernels take longer from some step on, unless `slow_gpu` reports these GPUs."""
    told = {one.case.index for one in slower(cases, "compute", SLOWER)} if len(cases) > 1 else set()
    slow = [found for case in cases if case.index not in told and (found := _than_before(case)) is not None]
    if not slow:
        return []
    worst = max(slow, key=lambda one: one.lost_ns)
    of = whose([one.case for one in slow], cases, measures)
    finding = _priced(
        "gpu-slows-down",
        slow,
        of,
        {"compute": worst.lost_ns},
        text=f"{of.name} computes {percent(worst.ns / worst.others_ns - 1)} longer {worst.case.each} than before"
        f"{_since(worst)}, with as many kernels: a lower clock, other work on it, or larger batches",
        change="watch clocks, power and temperature while it trains (nvidia-smi --query-gpu=clocks.sm,power.draw,"
        "temperature.gpu,clocks_event_reasons.active --format=csv -l 1), and what else runs on it; if batches grow or "
        "sequences get longer from that step on, nothing",
        evidence={"compute_ns_per_step": int(worst.ns), "before_ns_per_step": int(worst.others_ns)},
        refuted_by="the clock is the same before and after that step",
    )
    return [finding] if finding else []


def _than_before(case: Case) -> Slower | None:
    """Compare a GPU's steps after it became slower with its own earlier steps; None if it did not become slower."""
    rows = case.gpu.steps.rows
    if case.gpu.window != "steps" or len(rows) < 2 * LEAST_STEPS:
        return None
    ns = np.array([row.ledger_ns["compute"] or 0 for row in rows], float)
    kernels = np.array([row.kernels for row in rows])
    usual = np.quantile(ns, 0.25)  # a quarter of the steps took at most this long
    first = lasting(ns >= THAN_BEFORE * usual)
    if not first or min(first, len(rows) - first) < LEAST_STEPS:
        return None
    before, after = ns[:first].mean(), ns[first:].mean()
    alike = max(kernels) <= KERNELS_ALIKE * min(kernels)
    if not alike or after < THAN_BEFORE * before or (ns[:first] >= THAN_BEFORE * before).any():
        return None
    return Slower(case, float(after), float(before), int((ns[first:] - before).sum()), rows[first])


def _kernels(case: Case) -> int:
    """The number of kernels per step, or in the capture if there are no steps."""
    per_step = case.gpu.kernels.per_step
    return case.gpu.kernels.count if per_step is None else per_step


def slow_link(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """Findings on GPUs with slower copies from the host, or with slower transfers to other hosts."""
    found = (_slow_copies(cases, measures), _slow_transfers(cases, measures))
    return [finding for finding in found if finding is not None]


def _slow_copies(cases: Sequence[Case], measures: Measures) -> Finding | None:
    known = [case for case in cases if case.gpu.copies["h2d"].gb_per_s]
    shares = [case.gpu.copies["h2d"].pageable_share or 0.0 for case in known]
    if known and max(shares) - min(shares) > ALIKE:
        return None  # GPUs that copy from different kinds of memory have different rates.
    rate = {case.index: case.gpu.copies["h2d"].gb_per_s or 0.0 for case in known}
    slow = far(known, lambda case: 1 / rate[case.index], SLOWER_LINK)
    if not slow:
        return None
    since = {one.case.index: one.since for one in slower(known, "h2d", SLOWER_LINK)}
    lost = [
        Slower(one, 1, 1, int(one.ns("h2d") * (1 - rate[one.index] * usual)), since.get(one.index))
        for one, usual in slow
    ]
    worst = max(lost, key=lambda one: one.lost_ns)
    usual = next(usual for one, usual in slow if one is worst.case)
    of = whose([one for one, _ in slow], cases, measures)
    return _priced(
        "slow-link",
        lost,
        of,
        {"h2d": worst.lost_ns},
        text=f"copies reach {of.name} at {rate[worst.case.index]:.1f} GB/s, the others at {1 / usual:.1f} GB/s"
        f"{_since(worst)}",
        change="the host's memory: NUMA placement, channels, other load on the host"
        if of.scope == "host"
        else "the link of that GPU: generation and width of PCIe (nvidia-smi -q -d PCIE), its slot and switch; the "
        "rank on the cores beside it (nvidia-smi topo -m)",
        evidence={"gb_per_s": rate[worst.case.index], "others_median_gb_per_s": 1 / usual, "link": "host"},
        refuted_by="copies of another process reach this GPU as fast as the others (ringscope doctor)",
    )


def _slow_transfers(cases: Sequence[Case], measures: Measures) -> Finding | None:
    """A finding on a rail (the GPUs of one network card and switch) whose collectives take longer on all its GPUs.

    A slow link shows only if each rail has a ring of its own, since one ring through all ranks is slow on all alike.
    The time includes waiting, since calls of several groups that end together cannot be told apart. So the finding uses
    the least time of the rail's GPUs: they cannot all be waiting for each other.
    """
    known = [case for case in cases if case.gpu.collectives.busy_ns and case.gpu.collectives.per_step]
    if len(known) < len(cases) or len({case.gpu.collectives.per_step for case in known}) > 1:
        return None
    took = {case.index: case.gpu.collectives.busy_ns / case.steps for case in known}
    slow = far(known, lambda case: took[case.index], SLOWER_LINK)
    of = whose([one for one, _ in slow], cases, measures) if slow else None
    if of is None or of.scope != "rail":
        return None
    least, usual = min(slow, key=lambda one: took[one[0].index])
    longer = took[least.index] - usual
    lost = [Slower(one, took[one.index], usual, min(int(longer * one.steps), one.ns("collective"))) for one, _ in slow]
    return _priced(
        "slow-link",
        lost,
        of,
        {"collective": max(one.lost_ns for one in lost)},
        text=f"{of.name} spends {numbers.duration(took[least.index])} per step or more in collectives, the other "
        f"GPUs {numbers.duration(usual)}: the network that {of.name} uses is slower than the others'",
        change="the network card and the switch that this GPU uses: errors and speed (ibstat, ethtool -S), then swap "
        "cables; which card NCCL takes for that GPU (NCCL_DEBUG=INFO)",
        evidence={
            "collective_ns_per_step": int(took[least.index]),
            "others_median_ns_per_step": int(usual),
            "link": "network",
        },
        refuted_by="ranks on another rail (network card and switch) take as long on this GPU",
    )


def slow_host(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """Findings on hosts whose GPUs all wait longer for their host than other GPUs do: a slow CPU, disk or network."""
    found = []
    for owner, (waits, change) in WAITS.items():
        slow = [
            one
            for one in slower(cases, owner, WAITS_MORE) + _never_waiting(cases, owner)
            if one.lost_ns >= OTHER_LADDER[1] * one.case.gpu.span_ns
        ]
        of = whose([one.case for one in slow], cases, measures) if slow else None
        if of is None or of.scope != "host":
            continue
        least = min(slow, key=lambda one: one.lost_ns)  # the GPU of the slow host that waits least
        others = least.others_ns * least.case.steps / least.case.gpu.span_ns
        finding = _priced(
            "slow-host",
            slow,
            of,
            {owner: least.lost_ns},
            text=f"{of.name} has to {waits.replace('their', 'its')} for {percent(least.case.share(owner))} of the time "
            f"or more, the others for {percent(others)}{_since(least)}",
            change=f"look at {change}",
            evidence={f"{owner}_ns": least.case.ns(owner), "others_median_ns_per_step": int(least.others_ns)},
            refuted_by="its ranks wait as long on another host",
        )
        found += [finding] if finding else []
    return found


def _never_waiting(cases: Sequence[Case], owner: str) -> list[Slower]:
    """The GPUs that wait although the median GPU does not wait at all; `slower` cannot give that as a ratio."""
    each = [case.ns(owner) for case in cases]
    if len(each) < 2 or median(each):
        return []
    return [Slower(case, ns / case.steps, 0, ns) for case, ns in zip(cases, each, strict=True) if ns]


def _since(one: Slower) -> str:
    return f", from step {one.since.step} on" if one.since else ""


def _priced(
    code: str,
    slow: Sequence[Slower],
    of: Whose,
    saved_ns: Mapping[str, int],
    *,
    text: str,
    change: str,
    evidence: Mapping[str, object],
    refuted_by: str,
) -> Finding | None:
    """Make a finding, priced on the GPU that loses most. Its evidence names the slow GPU, host or rail."""
    worst = max(slow, key=lambda one: one.lost_ns)
    since = worst.since
    found = worst.case.finding(
        code,
        saved_ns,
        text=text,
        change=change,
        evidence={
            **evidence,
            "scope": of.scope,
            **({"hosts": list(of.hosts)} if of.hosts else {}),
            **({"since_step": since.step, "since_ns": since.start_ns} if since else {}),
        },
        refuted_by=refuted_by,
        busy_saved_ns=saved_ns,
    )
    if found is not None and len(slow) > 1:
        found.evidence["gpus"] = [one.case.index for one in slow]
    return found


RULES = (slow_gpu, slows_down, slow_link, slow_host)
