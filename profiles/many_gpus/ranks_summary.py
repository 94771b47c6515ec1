"""Summarise many GPUs in a few rows: how each owner's time spreads over the GPUs, and which GPUs differ from the
others.

Times are means per measured step; if any GPU has no steps, times are totals of the whole windows. A median is the
value of one of the GPUs (nearest rank), never the mean of two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ground.stats import MAD_TO_SIGMA, nearest_rank
from ..model.findings import Finding, Straggler
from ..model.measures import OWNERS, GpuMeasures, Measures, Trust
from ..model.measures_json import plain
from ..model.timeline import Doubt

SCHEMA = "ringscope.summary/1"
# A GPU is an outlier if its distance from the median of all GPUs exceeds SIGMAS robust sigmas and STEP_SHARE of a
# step.
SIGMAS, STEP_SHARE = 5, 0.01
# The whole step, the time of each owner, and the part of the collectives in which a GPU waits for other ranks.
METRICS = ("step", *OWNERS, "waiting")
MOST_LISTED = 8  # a list in a finding's evidence with more entries is replaced by its spread


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of one metric over the GPUs for which it is known."""

    metric: str
    min_ns: int
    median_ns: int
    max_ns: int
    min_gpu: int  # index into Measures.gpus
    max_gpu: int
    sigma_ns: float  # 1.4826 x the median of the GPUs' distances from the median
    unknown: int  # number of GPUs for which the metric is not known


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric in which a GPU or host is an outlier. `sigmas` is None if sigma is 0: at least half of the GPUs are
    equal."""

    metric: str
    ns: int
    median_ns: int
    difference_ns: int
    sigmas: float | None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A GPU that differs from the others, or a host whose GPUs all differ in the same metric and direction."""

    what: str  # "gpu" or "host"
    name: str
    gpus: list[int]
    host: str | None
    differences: list[Difference]


@dataclass(frozen=True, slots=True)
class Host:
    """The GPUs of one host, and the median of each metric over them."""

    host: str
    gpus: list[int]
    median_ns: dict[str, int]


@dataclass(frozen=True, slots=True)
class CountedDoubt:
    """A doubt, and the number of recordings, GPUs or files that the doubt concerns; 0: all."""

    code: str
    text: str
    next: str
    places: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The content of `ringscope timeline --json-summary` (docs/reference/json.md)."""

    titles: list[str]  # the name of each GPU; GPU numbers below are indices into this list
    ranks: list[int | None]
    recordings: int
    per: str  # times are per "step", "batch" or "window"
    count: int  # the smallest number of steps, batches or windows measured on a GPU
    findings: list[Finding]
    outliers: list[Outlier]
    spreads: list[Spread]
    hosts: list[Host]
    doubts: list[CountedDoubt]
    straggler: Straggler | None
    clock: dict[str, Any] | None
    trust: Trust | None = None
    schema: str = SCHEMA

    def told(self, metric: str) -> Spread | None:
        """The spread of this metric; None if the metric is unknown on all GPUs, or 0 on all."""
        return next((one for one in self.spreads if one.metric == metric), None)


def dumps(summary: Summary) -> str:
    """The summary as JSON text, ending in a newline."""
    found: dict[str, Any] = plain(summary)
    ordered = {"schema": found.pop("schema"), **found}
    return json.dumps(ordered, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def hosts_of(measures: Measures) -> list[str | None]:
    """The host of each GPU; None if the GPU's recording does not name its host."""
    return [measures.recordings[gpu.recordings[0]].host for gpu in measures.gpus]


def summarise(measures: Measures, hosts: Sequence[str | None] | None = None) -> Summary:
    """Summarise the measures. `hosts`: the host of each GPU, by default from `hosts_of`."""
    hosts = hosts_of(measures) if hosts is None else hosts
    titles = measures.titles
    per, count = _unit(measures.gpus)
    values = {metric: [_value(gpu, metric, per) for gpu in measures.gpus] for metric in METRICS}
    spreads = [one for metric in METRICS if (one := _spread(metric, values[metric])) is not None]
    away = {one.metric: _away(one, values[one.metric], spreads[0].median_ns) for one in spreads}
    members = {host: [gpu for gpu, one in enumerate(hosts) if one == host] for host in hosts if host is not None}
    return Summary(
        titles=titles,
        ranks=[gpu.rank for gpu in measures.gpus],
        recordings=len(measures.recordings),
        per=per,
        count=count,
        findings=[replace(one, evidence=_shortened(one.evidence)) for one in measures.findings],
        outliers=list(_outliers(titles, hosts, members, spreads, away)),
        spreads=spreads,
        hosts=_hosts(members, values, spreads),
        doubts=_counted(measures.doubts),
        straggler=measures.straggler,
        clock=measures.clock,
        trust=measures.trust,
    )


def _unit(gpus: Sequence[GpuMeasures]) -> tuple[str, int]:
    if any(gpu.window != "steps" or not gpu.steps.count for gpu in gpus):
        return "window", 1
    return gpus[0].steps.unit, min(gpu.steps.count for gpu in gpus)


def _value(gpu: GpuMeasures, metric: str, per: str) -> int | None:
    """The metric of one GPU in ns per `per`, rounded; None if the metric is not known."""
    total = {"step": gpu.span_ns, "waiting": gpu.collectives.waiting_ns}.get(metric, gpu.ledger_ns.get(metric))
    if total is None:
        return None
    units = 1 if per == "window" else gpu.steps.count
    return (2 * total + units) // (2 * units)


def _spread(metric: str, values: Sequence[int | None]) -> Spread | None:
    """The spread of one metric; None if the metric is unknown on all GPUs, or 0 on all."""
    known = [(value, gpu) for gpu, value in enumerate(values) if value is not None]
    if not any(value for value, _ in known):
        return None
    least, most = min(known), max(known, key=lambda one: (one[0], -one[1]))
    middle = nearest_rank([value for value, _ in known], 50)
    distance = nearest_rank([abs(value - middle) for value, _ in known], 50)
    sigma_ns = MAD_TO_SIGMA * distance
    return Spread(metric, least[0], middle, most[0], least[1], most[1], sigma_ns, len(values) - len(known))


def _away(spread: Spread, values: Sequence[int | None], step_ns: int) -> dict[int, Difference]:
    """For each GPU that is an outlier in this metric: by how much."""
    found = {}
    for gpu, value in enumerate(values):
        if value is None:
            continue
        difference = value - spread.median_ns
        if abs(difference) > SIGMAS * spread.sigma_ns and abs(difference) > STEP_SHARE * step_ns:
            found[gpu] = _difference(spread, value)
    return found


def _difference(spread: Spread, value: int) -> Difference:
    difference = value - spread.median_ns
    sigmas = abs(difference) / spread.sigma_ns if spread.sigma_ns else None
    return Difference(spread.metric, value, spread.median_ns, difference, sigmas)


def _outliers(
    titles: Sequence[str],
    hosts: Sequence[str | None],
    members: Mapping[str, Sequence[int]],
    spreads: Sequence[Spread],
    away: Mapping[str, Mapping[int, Difference]],
) -> list[Outlier]:
    """Hosts and GPUs that are outliers, the largest difference first. If all GPUs of a host are outliers in a metric,
    the host is listed for that metric in place of its GPUs."""
    of_hosts: dict[str, list[Difference]] = {}
    of_gpus: dict[int, list[Difference]] = {}
    for spread in spreads:
        far = dict(away[spread.metric])
        for host, gpus in members.items():
            signs = {far[gpu].difference_ns > 0 for gpu in gpus if gpu in far}
            if len(gpus) > 1 and len(signs) == 1 and all(gpu in far for gpu in gpus):
                value = nearest_rank([far.pop(gpu).ns for gpu in gpus], 50)
                of_hosts.setdefault(host, []).append(_difference(spread, value))
        for gpu, difference in far.items():
            of_gpus.setdefault(gpu, []).append(difference)
    found = [Outlier("host", host, list(members[host]), host, _largest_first(d)) for host, d in of_hosts.items()]
    found += [Outlier("gpu", titles[gpu], [gpu], hosts[gpu], _largest_first(d)) for gpu, d in of_gpus.items()]
    return sorted(found, key=lambda one: -max(abs(each.difference_ns) for each in one.differences))


def _largest_first(differences: Sequence[Difference]) -> list[Difference]:
    """Sort by size, metrics above the median first: they hold the cause, as a slow rank itself waits less than the
    others."""
    return sorted(differences, key=lambda one: (one.difference_ns < 0, -abs(one.difference_ns)))


def _hosts(
    members: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int | None]], spreads: Sequence[Spread]
) -> list[Host]:
    """Sort hosts by their largest distance from the median in any metric, largest first, then by their first GPU."""

    def furthest(host: Host) -> int:
        return max(abs(host.median_ns.get(one.metric, one.median_ns) - one.median_ns) for one in spreads)

    found = [_host(host, gpus, values) for host, gpus in members.items()]
    return sorted(found, key=lambda host: (-furthest(host), host.gpus[0]))


def _host(host: str, gpus: Sequence[int], values: Mapping[str, Sequence[int | None]]) -> Host:
    medians = {}
    for metric, of_all in values.items():
        known = [value for gpu in gpus if (value := of_all[gpu]) is not None]
        if known:
            medians[metric] = nearest_rank(known, 50)
    return Host(host, list(gpus), medians)


def _shortened(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Replace long lists in the evidence by their count, minimum, median and maximum."""
    return {
        key: _short(value) if isinstance(value, list) and len(value) > MOST_LISTED else value
        for key, value in evidence.items()
    }


def _short(values: Sequence[Any]) -> dict[str, Any]:
    known = sorted(value for value in values if isinstance(value, int | float))
    if not known:
        return {"count": len(values)}
    return {"count": len(values), "min": known[0], "median": known[(len(known) - 1) // 2], "max": known[-1]}


def _counted(doubts: Sequence[Doubt]) -> list[CountedDoubt]:
    """Merge doubts with equal code and remedy into one doubt with the first one's text and the number of all places."""
    alike: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in doubts:
        alike.setdefault((doubt.code, doubt.next), []).append(doubt)
    return [
        CountedDoubt(code, several[0].text, remedy, len({place for doubt in several for place in doubt.where}))
        for (code, remedy), several in alike.items()
    ]


def shown_one_by_one(summary: Summary, asked: Sequence[int] = (), most: int = 12) -> list[int]:
    """Choose the GPUs that a page shows in full, as indices: the GPUs asked for, the first and the last; then, up to
    `most` in all, outliers and GPUs that findings name."""
    last = len(summary.titles) - 1
    chosen = [*asked, 0, last]
    named = [finding.gpu for finding in summary.findings if finding.gpu is not None]
    for gpu in [*(one.gpus[0] for one in summary.outliers), *named]:
        if len(set(chosen)) < most:
            chosen.append(gpu)
    return sorted(set(chosen))
