"""Findings that compare the ranks of a run: a straggler, ranks that wait for each other in turn, negotiation, too many
threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ground import numbers
from ..ground.numbers import share as percent
from ..model.findings import Finding
from ..model.measures import Measures
from .case import OTHER_LADDER, Case, degree
from .collectives import GRADIENTS, exposed_kind
from .shared_advice import less_often

ARRIVES_LAST = 0.5
UNLIKE = "give its stage, its experts or its shard as much work as the others'; else "
# This many launching threads of each process are not counted against the cores: the main thread, Horovod's, NCCL's and
# input threads. A ResNet-50 trained by ring on two H200s had 4 such threads beside its thread pool.
OTHER_THREADS = 8


def straggler(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """A finding on a rank that is last to arrive at most collectives, so that the other ranks wait for it."""
    known = [c for c in cases if c.gpu.collectives.arrived_last_share is not None]
    if len(known) < 2:
        return []
    last = max(known, key=lambda c: c.gpu.collectives.arrived_last_share or 0.0)
    others = [c for c in known if c is not last]
    waiting = max(others, key=lambda c: c.gpu.waiting_for_ranks_ns)
    lost = waiting.gpu.waiting_for_ranks_ns
    share = last.gpu.collectives.arrived_last_share or 0.0
    if (
        not waiting.trains
        or share < ARRIVES_LAST
        or share < 1.5 / len(known)
        or lost < OTHER_LADDER[1] * waiting.gpu.span_ns
        or 2 * last.gpu.waiting_for_ranks_ns > lost  # stages of a pipeline wait for each other
    ):
        return []
    name = last.gpu.title
    told = measures.straggler if measures.straggler and measures.straggler.gpu == last.index else None
    since = f", from {numbers.duration(told.since_ns)} on" if told else ""
    before = waiting.ns("idle_peers")
    finding = waiting.finding(
        "straggler",
        {"collective": lost - before, "idle_peers": before},
        busy_saved_ns={"collective": lost - before},
        text=f"{name} arrives last at {percent(share)} of the collectives{since}; the others wait "
        f"{percent(lost / waiting.gpu.span_ns)} of the time for it",
        change=(UNLIKE if exposed_kind(waiting) in ("send_recv", "all_to_all") else "")
        + f"look at {name} alone: its clock and temperature (nvidia-smi -q -d CLOCK,PERFORMANCE), its link, its "
        "host's load; shard the data evenly",
        evidence={"arrived_last_share": share, "waiting_ns": lost, "gpu": last.index}
        | ({"since_ns": told.since_ns, "since_step": _step_at(last, told.since_ns)} if told else {}),
        refuted_by="another GPU comes last once the ranks have swapped GPUs",
    )
    return _of(last.index, finding)


def by_turns(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """A finding on ranks that wait for each other in turn: a step has several collectives, and a different rank is late
    at each of them, though no rank is slower on the whole."""
    known = [c for c in cases if c.gpu.collectives.by_turns_ns is not None]
    if not known or len(known) < len(cases):
        return []
    case = max(known, key=lambda c: c.gpu.span_ns)
    turns_ns = case.gpu.collectives.by_turns_ns or 0
    lost = turns_ns * case.steps
    if not case.trains or exposed_kind(case) not in GRADIENTS or lost < OTHER_LADDER[1] * case.gpu.span_ns:
        return []
    finding = case.finding(
        "ranks-wait-by-turns",
        {"collective": lost},
        busy_saved_ns={"collective": lost},
        text="no rank is slower than the others, but each waits for others in turn. A step would be shorter by "
        f"{numbers.duration(turns_ns)}, {percent(lost / case.gpu.span_ns)}, if the ranks exchanged once per step",
        change="sum all gradients at one place of the step, in one group (hvd.grouped_allreduce after the backward "
        "pass; PyTorch's DDP: a larger bucket_cap_mb), or make the work between two collectives take as long on all "
        "ranks: launch collectives among the same kernels on each rank, and give each rank equal work in each part",
        evidence={"by_turns_ns": turns_ns, "collectives_per_step": case.gpu.collectives.per_step},
        refuted_by="a step takes as long with one collective per step",
    )
    return _of(None, finding)


def negotiation(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """A finding on gradients that are ready on one rank and wait for Horovod's negotiation and for other ranks."""
    known = [c for c in cases if _unlaunched_ns(c) is not None]
    if not known:
        return []
    waiting = max(known, key=lambda c: _unlaunched_ns(c) or 0)
    lost, for_peers = _unlaunched_ns(waiting) or 0, waiting.ns("idle_peers")
    share = lost / waiting.gpu.span_ns
    if share < OTHER_LADDER[1]:
        return []
    least = min(known, key=lambda c: _unlaunched_ns(c) or 0)
    met = waiting.gpu.collectives.waiting_ns is not None  # else the recordings may be of different runs
    latest = least if met and 2 * (_unlaunched_ns(least) or 0) < lost else None
    if latest:
        change = f"find what delays {latest.gpu.title} (see its own findings): the others wait for its gradients"
    elif not met or len(known) < len(cases):
        change = "record all ranks and see which of them waits least: the others wait for it"
    else:
        less = less_often(waiting, 2)
        change = (
            "all ranks wait alike: make fewer all-reduces per sample "
            f"({', '.join(filter(None, ['a larger batch', less]))}); HOROVOD_CYCLE_TIME=0.1 if "
            "scripts/build_horovod.py did not build this Horovod (that build does not wait for a cycle)"
        )
    what = "reduce-scatter" if "reduce_scatter" in waiting.gpu.collectives.kinds else "all-reduce"
    finding = waiting.finding(
        "gradients-wait-for-ranks",
        {"idle_peers": for_peers, "idle_launch": lost - for_peers},
        text=f"{degree(share, OTHER_LADDER)} bound by the exchange's start: {percent(share)} of the time the gradients "
        f"are ready and their {what} is not launched"
        + (f", because the gradients of {latest.gpu.title} are not ready yet" if latest else ""),
        change=change,
        evidence={
            "negotiation_ns": [c.gpu.collectives.negotiation_ns for c in cases],
            "idle_peers_ns": for_peers,
            **({"late_gpu": latest.index} if latest else {}),
        },
        refuted_by="with one fixed batch in every step, so that no rank waits for its input, the ranks wait as long",
    )
    return [finding] if finding else []


def _unlaunched_ns(case: Case) -> int | None:
    """ns of idle time while gradients wait for their exchange: the larger of negotiation and peers idle; None:
    unknown."""
    negotiated, peers = case.gpu.collectives.negotiation_ns, case.gpu.ledger_ns["idle_peers"]
    return max(negotiated or 0, peers or 0) if negotiated is not None or peers else None


def _of(gpu: int | None, finding: Finding | None) -> list[Finding]:
    """[the finding, assigned to this GPU (None: to all GPUs)]; empty without a finding."""
    if finding is None:
        return []
    finding.gpu = gpu
    return [finding]


def _step_at(case: Case, time_ns: int) -> int | None:
    """The number of the measured step that holds this time; None if no step does."""
    return next((row.step for row in case.gpu.steps.rows if row.start_ns <= time_ns < row.end_ns), None)


def threads_oversubscribed(cases: Sequence[Case], measures: Measures) -> list[Finding]:
    """A finding on a host with more launching threads than cores, so that launches are late. The first OTHER_THREADS
    threads of each process do not count. A process with several GPUs counts once."""
    cpu = cases[0].context.machine.get("cpu") if cases else None
    cores = cpu.get("usable") if isinstance(cpu, Mapping) else None
    of_process: dict[tuple[object, ...], int] = {}
    for case in cases:
        process = (case.gpu.rank, *case.gpu.recordings)
        of_process[process] = max(of_process.get(process, 0), case.gpu.calling_threads or 0)
    threads = sum(of_process.values())
    if not cores or sum(max(1, count - OTHER_THREADS) for count in of_process.values()) <= cores:
        return []
    processes = numbers.counted(len(of_process), "process")
    worst = max(cases, key=lambda case: case.share("idle_launch"))
    finding = worst.finding(
        "threads-oversubscribed",
        {"idle_launch": worst.ns("idle_launch")},
        text=f"{numbers.count(threads)} threads of {processes} launch work from {cores} cores, and "
        f"{percent(worst.share('idle_launch'))} of the time a GPU waits for a launch",
        change="divide the cores by the ranks: ring.init() does, else "
        "tf.config.threading.set_inter_op_parallelism_threads(cores // local_size)",
        evidence={"calling_threads": threads, "cores": cores},
        refuted_by="with one rank alone on the host the GPU still waits as long for launches",
    )
    return _of(None, finding)


RULES = (straggler, by_turns, negotiation, threads_oversubscribed)
