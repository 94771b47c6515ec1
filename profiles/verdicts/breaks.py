"""Find the causes of breaks: steps that took over three times the median step. Other findings leave breaks out of their
prices. Breaks of several GPUs that overlap count as one break of the GPU that caused it, since the other GPUs waited
for that GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..ground import numbers
from ..model.findings import Consequence, Finding
from ..model.measures import GpuMeasures, Measures
from ..model.places import Place
from ..model.steps import Break, ToldBreak
from . import places
from .case import Case

# A break is a checkpoint if it copies at least this many more tensors to the host than two usual steps do.
_TENSORS: Final = 8
# A break with at least this many times the kernels of a step also ran something else, such as an evaluation.
_MORE_KERNELS: Final = 1.5
# A cause explains a break if it takes this share of its extra time over a step.
_EXPLAINS: Final = 0.5
_NAMED: Final = 3  # A text names at most this many GPUs and counts the rest.
_WORTH: Final = 0.01  # Breaks in the user's code are a finding from this share of the time on.
_OF_XLA: Final = re.compile("XlaModule|Thunk")  # These ranges enclose a whole compiled program, so they name no cause.
WORDS: Final = {
    "checkpoint": "the host copied {fetched} tensors ({bytes}) from the GPU, as it does to save a checkpoint",
    "more-work": "{kernels} kernels ran, where a step has {usual}: perhaps an evaluation, or another part of the "
    "program",
    "compiling": "the host loaded or compiled kernels for {ns}",
    "input": "the GPU waited for a batch for {ns}",
    "peers": "the GPU waited for other ranks for {ns}",
    "host": "the GPU waited for the host for {ns}{did}",
    "other": "the GPU was busy, with as much work as in other steps",
}


@dataclass(frozen=True, slots=True)
class _One:
    """A break of one GPU, with its cause, and its start and end on the common clock."""

    gpu: int
    of: Break
    cause: str
    ns: int  # ns that the cause took
    over_ns: int  # ns by which the break is longer than the median step
    start_ns: int
    end_ns: int


def told(measures: Measures) -> list[ToldBreak]:
    """Breaks merged per GPU and cause: the costliest first, breaks that only waited for other ranks last."""
    together: dict[tuple[int, str], list[list[_One]]] = {}
    for cluster in _at_once(list(_breaks(measures))):
        lead = _lead(cluster)
        together.setdefault((lead.gpu, lead.cause), []).append(cluster)
    found = [_told(measures, clusters) for clusters in together.values()]
    return sorted(found, key=lambda one: (one.cause == "peers", -one.share_if_as_often))


def checkpoints(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """Findings on checkpoints that stop the training, priced as if they came as often throughout the training."""
    return [_checkpoint(measures, one, _place(measures, one)) for one in measures.breaks if _saves(measures, one)]


def places_that_stop(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """Findings on other parts of the user's code that stop the training now and then, priced in the same way."""
    found = [(one, _place(measures, one)) for one in measures.breaks if not _saves(measures, one)]
    return [_stop(measures, one, place) for one, place in found if place is not None and _comes_again(one, place)]


def _place(measures: Measures, one: ToldBreak) -> Place | None:
    rows = measures.gpus[one.gpu].places
    return None if one.place is None or rows is None else rows.rows[one.place]


def _saves(measures: Measures, one: ToldBreak) -> bool:
    """True for a checkpoint; if the place in the user's code is known, that code must save something."""
    place = _place(measures, one)
    return one.cause == "checkpoint" and (place is None or places.does(place) == "save")


def _comes_again(one: ToldBreak, place: Place) -> bool:
    """True for a break in the user's own code that is likely to recur, and not, say, the only recorded end of an
    epoch."""
    often = (one.count > 1 or "_batch_" in place.name) and places.is_the_users(place)
    return often and one.cause not in ("compiling", "peers") and one.share_if_as_often >= _WORTH


def _stop(measures: Measures, one: ToldBreak, place: Place) -> Finding:
    length = numbers.duration(one.length_ns - one.usual_ns)
    return Finding(
        places.code_of(place),
        one.gpu,
        *_price(measures, one),
        text=f"{places.what(place)} stops the training for {length} at step {one.step}: "
        f"{numbers.share(one.share_if_as_often)} of the time if this happens as often throughout{places.mostly(place)}",
        change=places.remedy(place),
        evidence=evidence(one, place),
        refuted_by="the breaks are as long without it",
        consequences=list(_waiting(measures, one)),
    )


def _checkpoint(measures: Measures, one: ToldBreak, place: Place | None) -> Finding:
    return Finding(
        "checkpoint-in-the-loop",
        one.gpu,
        *_price(measures, one),
        text=f"training stands still while a checkpoint is saved: {numbers.duration(one.length_ns - one.usual_ns)} "
        f"at step {one.step}, {numbers.share(one.share_if_as_often)} of the time if it is saved as often throughout"
        + (f", in {places.told(place)}" if place else ""),
        change="save less often (save_freq of ModelCheckpoint, in epochs or thousands of batches), weights alone "
        "(save_weights_only=True), to a local disk; or copy the weights and write them from another thread",
        evidence=evidence(one, place),
        refuted_by="the breaks are as long without saving",
        consequences=list(_waiting(measures, one)),
    )


def _price(measures: Measures, one: ToldBreak) -> tuple[int, float]:
    """Cost of the breaks in ns per step, and the gain if they went away."""
    gpu, share = measures.gpus[one.gpu], one.share_if_as_often
    steps = gpu.steps.count + len(gpu.breaks)
    return round(share * _all_ns(gpu)) // steps, 1 / (1 - share) - 1


def evidence(one: ToldBreak, place: Place | None) -> dict[str, Any]:
    of_place = {} if place is None else places.evidence(place)
    return {"breaks": one.count, "longest_break_ns": one.length_ns, "waits": one.waits, **of_place}


def _waiting(measures: Measures, saved: ToldBreak) -> Iterator[Consequence]:
    """Ranks that wait during the break, or that have a similar break in a recording of their own."""
    cost_ns = saved.length_ns - saved.usual_ns
    for gpu in saved.waits:
        text = f"{measures.titles[gpu]} waits for it"
        yield Consequence([gpu], saved.share_if_as_often, None, [], text)
    for one in measures.breaks:
        if one.cause == "peers" and one.gpu != saved.gpu and 2 * (one.length_ns - one.usual_ns) >= cost_ns:
            text = f"{measures.titles[one.gpu]} waits for other ranks meanwhile: {numbers.duration(one.length_ns)} at "
            yield Consequence([one.gpu], one.share_if_as_often, None, [], f"{text}step {one.step}")


def _all_ns(gpu: GpuMeasures) -> int:
    """ns of the measured steps and their breaks."""
    measured = sum(row.end_ns - row.start_ns for row in gpu.steps.rows)
    return measured + sum(one.end_ns - one.start_ns for one in gpu.breaks)


def _breaks(measures: Measures) -> Iterator[_One]:
    shifts = (measures.clock or {}).get("shifts") or [0] * len(measures.recordings)
    for index, gpu in enumerate(measures.gpus):
        shift = shifts[gpu.recordings[0]]
        if gpu.steps.period_ns is None:
            continue
        for one in gpu.breaks:
            over = one.end_ns - one.start_ns - gpu.steps.period_ns.p50
            cause, ns = _cause(gpu, one, over)
            yield _One(index, one, cause, ns, over, one.start_ns + shift, one.end_ns + shift)


def _cause(gpu: GpuMeasures, one: Break, over_ns: int) -> tuple[str, int]:
    """The cause of a break and its ns: the first cause that explains half of the break's extra time over a step."""
    usual = gpu.kernels.per_step or 0
    fetched = (gpu.copies["d2h"].count or 0) / max(1, gpu.steps.count)
    kernels = one.kernels > _MORE_KERNELS * usual
    idle = {name: one.ledger_ns.get(f"idle_{name}") or 0 for name in ("feed", "sync", "launch", "wait", "unknown")}
    waiting = (one.ledger_ns["collective"] or 0) + max(one.ledger_ns["idle_peers"] or 0, one.negotiation_ns)
    for cause, ns in (
        ("checkpoint", over_ns if one.fetched >= _TENSORS + 2 * fetched and not kernels else 0),
        ("more-work", over_ns if kernels else 0),
        ("compiling", one.compiling_ns),
        ("peers", waiting),
        ("input", idle["feed"]),
        ("host", idle["sync"] + idle["launch"] + idle["feed"] + idle["wait"] + idle["unknown"]),
    ):
        if ns >= _EXPLAINS * over_ns:
            return cause, ns
    return "other", over_ns


def _at_once(found: list[_One]) -> list[list[_One]]:
    """Group the breaks of several GPUs that overlap."""
    clusters: list[list[_One]] = []
    reach = 0
    for one in sorted(found, key=lambda one: one.start_ns):
        if clusters and one.start_ns < reach:
            clusters[-1].append(one)
        else:
            clusters.append([one])
        reach = max(reach, one.end_ns)
    return clusters


def _lead(cluster: Sequence[_One]) -> _One:
    """The break that caused the overlapping breaks: if possible, a break whose cause is known and is not waiting for
    other ranks."""
    return max(cluster, key=lambda one: (one.cause != "peers", one.cause != "other", one.ns))


def _told(measures: Measures, clusters: Sequence[Sequence[_One]]) -> ToldBreak:
    leads = [_lead(cluster) for cluster in clusters]
    longest = max(leads, key=lambda one: one.over_ns)
    gpu, of = measures.gpus[longest.gpu], longest.of
    assert gpu.steps.period_ns is not None
    # A mostly idle break happened after the step's last kernel, so it belongs to the time before the next step.
    before_next = of.gap_ns > _EXPLAINS * longest.over_ns
    others = [one for cluster in clusters for one in cluster if one.gpu != longest.gpu]
    waits = sorted({one.gpu for one in others if one.cause == "peers"})
    alike = sorted({one.gpu for one in others} - set(waits))
    share = sum(one.over_ns for one in leads) / _all_ns(gpu)
    length = of.end_ns - of.start_ns
    where = f"step {of.step}" + (f" and the time before step {of.step + 1}" if before_next else "")
    times = f", the longest of {len(leads)} breaks of this kind" if len(leads) > 1 else ""
    often = f"{len(leads)} in {gpu.steps.count + len(gpu.breaks)} steps"
    place = places.of_break(gpu.places.rows if gpu.places else (), of.places, longest.over_ns)
    in_place = f", in {places.told(place)}" if place else ""
    who = _who(measures, waits, "waited for it") + _who(measures, alike, "had a break, too")
    return ToldBreak(
        gpu=longest.gpu,
        step=of.step + before_next,
        start_ns=of.start_ns,
        length_ns=length,
        usual_ns=gpu.steps.period_ns.p50,
        cause=longest.cause,
        count=len(leads),
        text=f"{measures.titles[longest.gpu]}: {where} took {numbers.duration(length)}, "
        f"{numbers.factor(length / gpu.steps.period_ns.p50)} the median{times}: "
        f"{_did(gpu, longest)}{in_place}{who}. No other number includes this break; if it comes as often throughout "
        f"({often}), it costs {numbers.share(share)} of the time",
        share_if_as_often=share,
        waits=waits,
        place=None if place is None or gpu.places is None else gpu.places.rows.index(place),
    )


def _did(gpu: GpuMeasures, one: _One) -> str:
    named = [entry for entry in one.of.host if entry["ns"] >= _EXPLAINS * one.ns and not _OF_XLA.match(entry["name"])]
    did = (
        f", which was in {named[0]['name']}"
        if named
        else ", which was in no CUDA call or named range for most of this time"
    )
    return WORDS[one.cause].format(
        fetched=numbers.count(one.of.fetched),
        bytes=numbers.size(one.of.fetched_bytes),
        kernels=numbers.count(one.of.kernels),
        usual=numbers.count(gpu.kernels.per_step),
        ns=numbers.duration(one.ns),
        did=did if one.of.host else "",
    )


def _who(measures: Measures, others: Sequence[int], did: str) -> str:
    if not others:
        return ""
    names = ", ".join(measures.titles[gpu] for gpu in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"; {names}{more} {did}"


RULES = (checkpoints, places_that_stop)
