"""Sort findings so that the one with the largest gain comes first.

If a slow rank holds up the others, they wait in collectives, and this waiting raises the price of every finding on
collectives. Therefore a finding on collectives is sorted by its price without the waiting, and may come after the
finding on the slow rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..metrics.doubts import LOST
from ..model.findings import OF_RANKS, Finding
from .case import INPUT_LADDER

# Findings whose price is time in exposed collectives, which includes waiting for a slow rank.
WITH_WAITING = frozenset({"all-reduce-exposed", "collectives-exposed", "collectives-not-fused", "model-too-small"})
# Findings that a slow link or host makes dearer, since their price is that of the GPU that loses most.
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
# Findings whose price adds the wait for a batch and the copy of that batch.
_COPIED_LATE = ("no-prefetch", "prefetch-on-host-only")

# Groups of findings priced by the same time, so that their gains on one GPU cannot be added.
_PAID_BY = {
    "copies": _WITH_SLOWNESS["slow-link"],
    "launches": frozenset({"tiny-batch", "launch-bound", "python-in-the-loop", "not-compiled", "generic-rnn-cell"}),
}


def told_once(found: Sequence[Finding]) -> list[Finding]:
    """Add a remark to each finding that counts the same time as an earlier finding."""
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
    """The finding's gain on the whole window, by which findings are sorted; -1 without a price. The worth of
    `loss-not-judged` is half of the lost time, and at most LOST / 2 if the loss lies in gaps that occur only once."""
    if finding.at_most_gain is not None:
        gain: float = finding.evidence.get("gain_of_whole", finding.at_most_gain)
        return gain
    lost, once = (finding.evidence.get(name, 0.0) for name in ("lost_share", "lost_once_share"))
    half: float = min(lost / 2, max((lost - once) / 2, LOST / 2)) if once else lost / 2
    return half / (1 - half) if half else -1.0


def rank(found: Sequence[Finding], *, many: bool) -> Callable[[Finding], tuple[float, bool]]:
    """The key by which findings are sorted; the first finding has the largest key. many: True for a run with many GPUs.

    Of findings priced by one wait for a batch, `input-pipeline-slow` comes first, since it says why the host is late.
    Among many GPUs a slow host's findings have their own order.
    """
    price = _named_first(found, _beside_ranks(found) if many else _beside_slow(found))
    late = 0.0 if many else max((price(one) for one in found if one.code == "input-pipeline-slow"), default=0.0)
    fed = (price(one) for one in found if one.code in _COPIED_LATE)
    waiting = max((one for one in fed if one < 2 * late), default=0.0)  # prices that are mostly the wait for the batch

    def key(finding: Finding) -> tuple[float, bool]:
        slow = finding.code == "input-pipeline-slow"
        return max(waiting, price(finding)) if slow else price(finding), slow

    return key


def _named_first(found: Sequence[Finding], price: Callable[[Finding], float]) -> Callable[[Finding], float]:
    """`price`, but general findings on launches come after a large finding on input or on a line of the user's code.

    That finding must cost a fifth of the time, and half as much as the one on launches. Slow batches and callbacks
    delay launches, too, and are the more specific cause. `off-tensor-cores` comes just before `loss-not-judged` if its
    kernels take at least as long as the lost time: tensor cores are at least twice as fast.
    """
    lost = max((one for one in found if one.code == "loss-not-judged"), key=price, default=None)
    named = (one for one in found if one.evidence.get("file") or one.code == "input-pipeline-slow")
    largest = max((price(one) for one in named), default=0.0)

    def ranked(finding: Finding) -> float:
        own = price(finding)
        if (
            lost
            and finding.code == "off-tensor-cores"
            and finding.evidence["time_share"] >= lost.evidence["lost_share"]
        ):
            return price(lost) * (1 + 1e-9)
        is_near = _lost_share(largest) >= max(INPUT_LADDER[0], _lost_share(own) / 2)
        return min(own, largest * (1 - 1e-9)) if finding.code in _PAID_BY["launches"] and is_near else own

    return ranked


def _lost_share(gain: float) -> float:
    """The share of the time that a gain in throughput (a ratio minus 1) saves."""
    return gain / (1 + gain) if gain > 0 else 0.0


def _beside_slow(found: Sequence[Finding]) -> Callable[[Finding], float]:
    """`worth`, less the time that slow GPUs, links and hosts and waits by turns add to findings on collectives, and
    less the time that a slow link or host adds to findings on copies, input and launches.

    Waiting for a straggler is not subtracted, since among few ranks one may be last at most collectives by chance.
    """
    links = [finding for finding in found if finding.code == "slow-link"]
    caused_ns = max(
        (finding.cost_ns_per_step or 0 for finding in found if finding.code in _SLOW | _BY_TURNS), default=0
    )

    def beside(finding: Finding) -> float:
        return without(finding, caused_ns) if finding.code in WITH_WAITING else _without_slowness(finding, links)

    return beside


def _without_slowness(finding: Finding, slow: Sequence[Finding]) -> float:
    """`worth`, less the time that a slow link or host adds to this finding's price."""
    adds = next((one for one in slow if finding.code in _WITH_SLOWNESS.get(one.code, ())), None)
    return worth(finding) if adds is None else without(finding, adds.cost_ns_per_step or 0)


def _beside_ranks(found: Sequence[Finding]) -> Callable[[Finding], float]:
    """`worth` among many ranks: less the time that stragglers, slow GPUs, links and hosts, and waits by turns add.

    A slow GPU, link or host comes before a straggler that it contains, since it is the reason why that rank is late.
    """
    of_ranks = [finding for finding in found if finding.code in _BY_TURNS.union(OF_RANKS)]
    waiting_ns = max((finding.cost_ns_per_step or 0 for finding in of_ranks), default=0)
    most = max((worth(finding) for finding in of_ranks), default=0.0)
    late = {finding.gpu for finding in of_ranks if finding.code == "straggler"}

    def beside(finding: Finding) -> float:
        if finding.code in WITH_WAITING:
            return without(finding, waiting_ns)
        # Slightly more than the straggler's worth, so that the slow part comes first.
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
