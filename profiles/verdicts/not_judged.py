"""The finding `loss-not-judged`: lost time that no other finding explains, by owner, and why there is no advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..doubts.steps import where_kernels_lie
from ..ground import numbers
from ..ground.numbers import share as percent
from ..metrics.doubts import LOST, STARTUP_SHARE, shows_training
from ..model.findings import Finding
from ..model.measures import OWNERS, GpuMeasures, Measures
from ..model.timeline import Doubt
from .case import LEAST_KERNELS, REPORT_SHARE, Case
from .host_idle import called

CALLED = {
    "collective": "collectives not hidden by compute",
    "h2d": "copies to the GPU not hidden by compute",
    "d2h": "copies to the host not hidden by compute",
    "p2p": "copies between GPUs not hidden by compute",
    "d2d": "copies on the GPU not hidden by compute",
    "memset": "memsets not hidden by compute",
    "idle_pause": "a pause of the training",
    "idle_feed": "waiting for an input",
    "idle_peers": "waiting for other ranks",
    "idle_sync": "idle after the host waited for the GPU",
    "idle_launch": "waiting for a launch",
    "idle_turnaround": "gaps from one kernel to the next",
    "idle_wait": "idle although work was launched",
    "idle_unknown": "idle for an unknown reason",
}
LAUNCHED = "waiting for launched work to start"  # launch idle of which more than half follows the launch call
_OF_ALL = frozenset({"gradients-wait-for-ranks", "straggler"})
_FILLS = 0.3  # A text names a call that fills at least this share of the idle time.
_PARTS = 3


def not_judged(case: Case, findings: Sequence[Finding], measures: Measures) -> Finding | None:
    """A finding on lost time of a GPU that its other findings do not cover; None if that time is less than the share
    LOST of the window."""
    gpu = case.whole or case.gpu
    left = _unnamed_ns(case, [one for one in findings if one.gpu in (None, case.index)])
    if any(one.code in _OF_ALL for one in findings):
        left["idle_peers"] = 0  # Waiting for ranks is reported on one GPU, and covers all GPUs that wait.
    lost = sum(left.values())
    if lost < LOST * gpu.span_ns:
        return None
    why, remedy = _reason(case, gpu, left, measures)
    # In a recording of a few kernels, all work occurs once, so gaps that occur once are no exception.
    once_ns = gpu.rest.once_ns if gpu.rest and gpu.kernels.count >= LEAST_KERNELS else 0
    share, once = lost / gpu.span_ns, min(lost, once_ns) / gpu.span_ns
    largest = sorted((owner for owner in left if left[owner]), key=lambda owner: -left[owner])
    told = [owner for owner in largest if left[owner] >= REPORT_SHARE * gpu.span_ns][:_PARTS] or largest[:1]
    parts = ", ".join(_part(gpu, owner, left[owner], alone=len(told) == 1) for owner in told)
    return case.unpriced(
        "loss-not-judged",
        text=f"{percent(share)} of the time is lost, and no other finding explains it: {parts}. Not judged: {why}",
        change=remedy,
        evidence={"lost_share": share, "lost_ns_by_owner": {owner: left[owner] for owner in largest}}
        | ({"lost_once_share": once} if once else {}),
        refuted_by="a recording of the steady part loses as much",
    )


def _unnamed_ns(case: Case, findings: Sequence[Finding]) -> dict[str, int]:
    """For each owner but compute, ns of the window that no finding would save. `python-in-the-loop` is left out beside
    `launch-bound`, since both count the same time. All findings together explain no more than the owner's time in the
    part of the window that they cover."""
    within = [one for one in findings if one.code == "launch-bound"]
    apart = [one for one in findings if not (within and one.code == "python-in-the-loop")]
    gpu, left = case.whole or case.gpu, {}
    for owner in OWNERS:
        named = sum(one.saved_ns.get(owner, 0) for one in apart)
        left[owner] = max(0, (gpu.ledger_ns[owner] or 0) - min(named, case.gpu.ledger_ns[owner] or 0))
    return {owner: ns for owner, ns in left.items() if owner != "compute"}


def _part(gpu: GpuMeasures, owner: str, ns: int, *, alone: bool) -> str:
    share = "" if alone else f"{percent(ns / gpu.span_ns)} "
    held = sum(min(gap.launched_ns or 0, gap.causes_ns.get(owner, 0)) for gap in gpu.idle_gaps)
    called = LAUNCHED if owner == "idle_launch" and 2 * held > ns else CALLED[owner]
    return f"{share}{called}{_by_host(gpu, owner)}"


def _by_host(gpu: GpuMeasures, owner: str) -> str:
    """The call or function that the host runs during this owner's time, in brackets; "" if the recording does not show
    one."""
    if owner == "idle_sync":
        waits = [one for one in gpu.host_waits if one["call"]]
        own = 2 * sum(one.get("own_ns", 0) for one in waits) > (gpu.ledger_ns[owner] or 0)
        return f" ({called(waits[0])}{', then in no CUDA call' if own else ''})" if waits else ""
    if owner not in ("idle_launch", "idle_feed"):
        return ""
    calls = [str(one["name"]) for one in gpu.host_while_idle if one["kind"] == "api" and one["share"] >= _FILLS]
    doing = calls or _operators(gpu, owner)
    return f" ({doing[0]} under way)" if doing else ""


def _operators(gpu: GpuMeasures, owner: str) -> list[str]:
    """The framework's operators that fill half of the longest gap, if this gap is most of the owner's time."""
    gap = gpu.idle_gaps[0] if gpu.idle_gaps else None
    if gap is None or 2 * gap.causes_ns.get(owner, 0) < (gpu.ledger_ns[owner] or 0):
        return []
    return [str(one["name"]) for one in gap.host if one["kind"] == "operator" and 2 * one["ns"] >= gap.ns]


def _reason(case: Case, gpu: GpuMeasures, left: Mapping[str, int], measures: Measures) -> tuple[str, str]:
    """(why there is no advice, what to record or do instead), both as text."""
    largest = max(left, key=lambda owner: left[owner])
    about = list(_doubts(measures, case.index))
    blind = [doubt for doubt, where in about if where in ("/ledger_ns/idle_unknown", "/ledger_ns")]
    if not case.computes and not any(doubt.code == "launches-lost" for doubt in blind):
        return "no kernel is in the recording", "record while the program computes"
    if gpu.outside_calls_ns is None:  # without calls; a doubt on a file's clocks names no GPU
        blind = [doubt for doubt in measures.doubts if doubt.code == "clocks-apart"] + blind
    if largest == "idle_unknown" and blind:
        return blind[0].text, blind[0].next
    if case.example and case.hardly_computes:
        all_ns = numbers.duration(case.ns("compute"))
        return (
            f"kernels take {all_ns} in all, too little to tell anything about a program",
            "record more of the program",
        )
    if case.example:
        ran = f"{numbers.counted(gpu.kernels.count, 'kernel')} {'is' if gpu.kernels.count == 1 else 'are'}"
        return f"{ran} too few to tell anything about a whole model", "record steps of a whole model"
    if largest == "idle_unknown":
        if all(gap.ended_by is None for gap in gpu.idle_gaps if "idle_unknown" in gap.causes_ns):
            return "no operation follows it in the recording", "record a few more steps"
        return "the launch calls are not known", "record the launch calls, too"
    starting = gpu.startup_ns or 0
    if largest == "idle_launch" and 2 * starting > left["idle_launch"] and starting >= STARTUP_SHARE * gpu.span_ns:
        why = (
            f"in {numbers.duration(starting)} of this time the process creates its GPU context, loads, compiles or "
            "tunes kernels, or captures graphs"
        )
        return why, "record from the steady part of the run on"
    refused = next((doubt for doubt, _ in about if doubt.code == "steps-refused"), None)
    if largest == "collective":
        why = (
            "nothing but collectives runs: this is a benchmark of collectives, or their first calls set up connections"
        )
        return why, "record steps of a training"
    if gpu.rest is not None or not shows_training(gpu):
        why = (
            f"no {gpu.steps.unit} was found, and {where_kernels_lie(gpu)}: this may be the program's start, or a pause"
        )
        steps = refused.next if refused else ""
        return why, steps if steps.startswith("record") else "; ".join(filter(None, ["record the steady part", steps]))
    return (
        "none of these parts is large enough for a finding",
        "see where it lies: the longest gaps in the timeline (--html, --perfetto)",
    )


def _doubts(measures: Measures, index: int) -> Iterator[tuple[Doubt, str]]:
    """The doubts about a GPU, each with its place in that GPU's measures (a JSON pointer)."""
    gpu = f"/gpus/{index}"
    for doubt in measures.doubts:
        for where in doubt.where:
            if where == gpu or where.startswith(gpu + "/"):
                yield doubt, where.removeprefix(gpu)
