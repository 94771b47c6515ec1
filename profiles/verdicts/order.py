"""The order of findings: the one that would give back most first.

Where a rank holds up the others, their waiting is collective time, and every finding about collectives is priced with
it. A finding that is worth less without that waiting than the rank that causes it comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..metrics.doubts import LOST
from ..model.findings import OF_RANKS, Finding
from .case import INPUT_LADDER

# Priced by exposed collectives, in which others' waiting for a slow rank lies.
WITH_WAITING = frozenset({"all-reduce-exposed", "collectives-exposed", "collectives-not-fused", "model-too-small"})
# Priced on the GPU that loses most, which is one with a slow link or on a slow host where there are such.
_WITH_SLOWNESS = {
    "slow-link": frozenset(
        {
            "no-prefetch",
            "prefetch-on-host-only",
            "copies-pageable",
            "copies-synchronous",
            "copies-exposed",
            "copies-exposed-although-prefetched",
            "float32-input",
        }
    ),
    "slow-host": frozenset({"input-pipeline-slow", "no-prefetch", "launch-bound", "python-in-the-loop"}),
}
_SLOW = frozenset(OF_RANKS) - {"straggler"}
_BY_TURNS = frozenset({"ranks-wait-by-turns"})

# Findings priced by the same time: on one GPU their gains do not add.
_PAID_BY = {
    "copies": _WITH_SLOWNESS["slow-link"],
    "launches": frozenset({"tiny-batch", "launch-bound", "python-in-the-loop", "not-compiled", "generic-rnn-cell"}),
}


def told_once(found: Sequence[Finding]) -> list[Finding]:
    """Add a remark to each finding that is priced by the same time as an earlier one."""
    told = []
    for place, finding in enumerate(found):
        what = next((what for what, codes in _PAID_BY.items() if finding.code in codes), None)
        before = (
            one
            for one in found[:place]
            if what and one.code in _PAID_BY[what] and (None in (one.gpu, finding.gpu) or one.gpu == finding.gpu)
        )
        first = next(before, None)
        text = (
            (f"{finding.text}; it counts the same {what} as {first.code}, so the two gains cannot be added")
            if first
            else finding.text
        )
        told.append(replace(finding, text=text))
    return told


def worth(finding: Finding) -> float:
    """The finding's gain of the whole window, for ordering; -1 without a price. Lost time that is not judged counts as
    half of its size, and a loss that comes once as a twentieth of the window at most."""
    if finding.at_most_gain is not None:
        gain: float = finding.evidence.get("gain_of_whole", finding.at_most_gain)
        return gain
    lost, once = (finding.evidence.get(name, 0.0) for name in ("lost_share", "lost_once_share"))
    half: float = min(lost / 2, max((lost - once) / 2, LOST / 2)) if once else lost / 2
    return half / (1 - half) if half else -1.0


def named_first(found: Sequence[Finding], price: Callable[[Finding], float]) -> Callable[[Finding], float]:
    """`price`, but a finding on launches in general comes after input, or a line of the user's own, that costs a fifth
    of the time and half as much: what makes a batch or waits in a callback holds up launches, too, and it is named."""
    named = (one for one in found if one.evidence.get("file") or one.code == "input-pipeline-slow")
    largest = max((price(one) for one in named), default=0.0)

    def ranked(finding: Finding) -> float:
        own = price(finding)
        is_near = _lost_share(largest) >= max(INPUT_LADDER[0], _lost_share(own) / 2)
        return min(own, largest * (1 - 1e-9)) if finding.code in _PAID_BY["launches"] and is_near else own

    return ranked


def _lost_share(gain: float) -> float:
    """The share of the time that a gain gives back."""
    return gain / (1 + gain) if gain > 0 else 0.0


def beside_slow(found: Sequence[Finding]) -> Callable[[Finding], float]:
    """`worth`, but findings on collectives do not count waiting for slow GPUs, links and hosts or by turns, and
    findings on copies do not count the time that a slow link adds.

    Waiting for a straggler does count: one of a few ranks is last at most of the collectives by chance.
    """
    links = [finding for finding in found if finding.code == "slow-link"]
    caused_ns = max(
        (finding.cost_ns_per_step or 0 for finding in found if finding.code in _SLOW | _BY_TURNS), default=0
    )

    def beside(finding: Finding) -> float:
        return without(finding, caused_ns) if finding.code in WITH_WAITING else _without_slowness(finding, links)

    return beside


def _without_slowness(finding: Finding, slow: Sequence[Finding]) -> float:
    """`worth`, but without the time that a slow link or host adds to this finding."""
    adds = next((one for one in slow if finding.code in _WITH_SLOWNESS.get(one.code, ())), None)
    return worth(finding) if adds is None else without(finding, adds.cost_ns_per_step or 0)


def beside_ranks(found: Sequence[Finding]) -> Callable[[Finding], float]:
    """`worth`, but without the time that a straggler, slow GPUs, links and hosts, and turns add to a finding.

    Slow GPUs, links and hosts come before the straggler among them, since they are why it arrives last.
    """
    of_ranks = [finding for finding in found if finding.code in _BY_TURNS.union(OF_RANKS)]
    waiting_ns = max((finding.cost_ns_per_step or 0 for finding in of_ranks), default=0)
    most = max((worth(finding) for finding in of_ranks), default=0.0)
    late = {finding.gpu for finding in of_ranks if finding.code == "straggler"}

    def beside(finding: Finding) -> float:
        if finding.code in WITH_WAITING:
            return without(finding, waiting_ns)
        # As much as the straggler, and a hair more to come before it.
        slow = finding.evidence.get("gpus", [finding.gpu])
        if finding.code in _SLOW and late & set(slow):
            return most * (1 + 1e-9)
        return _without_slowness(finding, of_ranks)

    return beside


def without(finding: Finding, ns: int) -> float:
    """The finding's gain if its cost were `ns` less. gain = step / (step - cost) - 1, which gives the step."""
    gain, cost = finding.at_most_gain, finding.cost_ns_per_step
    if not gain or cost is None:
        return worth(finding)
    step = cost * (1 + gain) / gain
    rest = max(0, cost - ns)
    return step / (step - rest) - 1
