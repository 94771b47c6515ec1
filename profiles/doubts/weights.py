"""The weight of every doubt about a recording: which numbers the doubt concerns, and how far these can be trusted.

NOTE: a number is missing, or is marked as a bound; the other numbers are right. CARE: some numbers are distorted, or
describe only a part of the run. REFUSE: the report's main result is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Final

from ..model.measures import GpuMeasures, Measures

NOTE, CARE, REFUSE = WEIGHTS = ("note", "care", "refuse")  # in ascending order
# A doubt about less than this share of a window is a NOTE.
LITTLE: Final = 0.01
_HALF: Final = 0.5

Share = Callable[[Measures, GpuMeasures], float]


@dataclass(frozen=True, slots=True)
class Weight:
    """`least`: the weight if the doubt concerns at least LITTLE of the window; below that the weight is NOTE.

    `numbers`: the numbers that the doubt concerns, in words. `share`: the share of a GPU's window that the doubt
    concerns; None: the weight is always `least`. `refuse_from`: from this share on the weight is REFUSE.
    """

    least: str
    numbers: str
    share: Share | None = None
    refuse_from: float = inf


def _owned(*owners: str) -> Share:
    """A function that returns the summed share of the window of these owners."""
    return lambda _, gpu: sum(gpu.ledger_ns[owner] or 0 for owner in owners) / gpu.span_ns


def _idle(_: Measures, gpu: GpuMeasures) -> float:
    return sum(ns or 0 for owner, ns in gpu.ledger_ns.items() if owner.startswith("idle_")) / gpu.span_ns


def _idle_of_training(measures: Measures, gpu: GpuMeasures) -> float:
    """The idle share, since much idle time without steps suggests start-up; LITTLE for inference, which waits for
    requests; 1 if no GPU computes."""
    if not any(one.kernels.count or one.kernels.graph_launches for one in measures.gpus):
        return 1.0
    return LITTLE if gpu.steps.unit == "batch" else max(LITTLE, _idle(measures, gpu))


def _lost(measures: Measures, gpu: GpuMeasures) -> float:
    """The larger of two shares: launches lost of all launches, and time in which lost operations may have run; 1 if
    unknown."""
    if gpu.launches is None:
        return LITTLE
    return max(gpu.launches.share_lost, _unknown(measures, gpu)) if gpu.told else 1.0


def _dropped(_: Measures, gpu: GpuMeasures) -> float:
    """The share that dropped events may concern: LITTLE if the recorded launches have their operations; else 1."""
    return LITTLE if gpu.launches is not None and gpu.launches.count and gpu.told else 1.0


def _nameless(measures: Measures, gpu: GpuMeasures) -> float:
    """The share that may be wrong: 0 if the GPU has a UUID, or a bus id on a known host, and ran no collective; else
    LITTLE, as recordings of several GPUs may look like one's. NCCL refuses two ranks on one GPU."""
    one_host = len(gpu.recordings) == 1 or all(measures.recordings[one].host for one in gpu.recordings)
    return 0.0 if (gpu.uuid or (gpu.bus_id and one_host)) and not gpu.collectives.count else LITTLE


def _clocks(measures: Measures, gpu: GpuMeasures) -> float:
    """The residual between ranks' clocks, as a share of the median step or, without steps, of the window."""
    residual_ns = (measures.clock or {}).get("residual_ns")
    step = gpu.steps.period_ns
    if not isinstance(residual_ns, int | float):
        return LITTLE
    return residual_ns / (step.p50 if step and step.p50 else gpu.span_ns)


_unknown = _owned("idle_unknown")
_by_host = _owned("idle_launch", "idle_sync", "idle_feed", "idle_pause", "idle_unknown")

_IDLE_CAUSES = "the causes of idle time, and the gains of findings about idle time"
_ACROSS = "waiting and transfer of collectives, bus bandwidth, the straggler"
_NAMES = "names in the tables of kernels, operators and ranges"
_LINES = "the lines of your script in which the host was"

OF: Final[Mapping[str, Weight]] = MappingProxyType(
    {
        # Doubts about events that the profiler lost, or that were removed later.
        "dropped-events": Weight(CARE, "all numbers: the lost events may be of any kind", _dropped, 1.0),
        "launches-lost": Weight(CARE, f"idle time, counts of kernels and steps, {_IDLE_CAUSES}", _lost, 1.0),
        "events-left-out": Weight(REFUSE, "all numbers but the times of the recorded kernels"),
        "operations-untimed": Weight(CARE, "idle time, counts and times of kernels", _unknown, _HALF),
        "impossible-times": Weight(CARE, "counts and times of these events, and idle time in their place"),
        "mixed-types": Weight(CARE, "counts and times of the events that were left out, and idle time in their place"),
        "unfinished-recording": Weight(CARE, "the last phases and events, which are missing"),
        "copy-left-out": Weight(NOTE, "none: what was given twice is read once"),
        "unreadable": Weight(REFUSE, "all numbers of this recording, and the waiting of other ranks"),
        "profiler-warnings": Weight(CARE, "the numbers that the profiler's warning is about"),
        # Doubts about CUDA graphs: recorded only as a whole, or captured and never run.
        "graph-level-recording": Weight(CARE, "compute, collectives and copies inside CUDA graphs; counts of kernels"),
        "capture-recording": Weight(REFUSE, "all numbers: the recorded launches ran nothing on the GPU"),
        # Doubts about events that were not recorded.
        "class-not-recorded": Weight(
            CARE, f"the time of the operations that were not recorded, idle time, {_IDLE_CAUSES}"
        ),
        "no-api-rows": Weight(CARE, f"{_IDLE_CAUSES}, launch latency", _unknown),
        "host-clock": Weight(CARE, f"{_IDLE_CAUSES}, launch latency", _unknown),
        "clocks-apart": Weight(CARE, f"{_IDLE_CAUSES}, steps by marks, launch latency"),
        "calls-missing": Weight(CARE, f"idle_unknown, {_IDLE_CAUSES}", _unknown),
        "no-marks": Weight(NOTE, "steps, which are found without marks, and waiting for input"),
        "no-gpu": Weight(REFUSE, "all numbers: no GPU was recorded"),
        "skipped-files": Weight(NOTE, "none, unless one of these files is a recording of this run"),
        # Doubts about windows that hold start-up, or only a part of the run.
        "mostly-no-training": Weight(CARE, "idle time and all shares of the window", _idle_of_training, _HALF),
        "start-up-inside-window": Weight(
            CARE, "idle_launch and all shares of the window", lambda _, gpu: (gpu.startup_ns or 0) / gpu.span_ns, _HALF
        ),
        "steps-cover-little": Weight(CARE, "all numbers: they describe the steps, not the whole recording"),
        "steps-by-period": Weight(
            CARE, "all numbers per step: the steps may really be parts of a step, or several steps"
        ),
        "several-steps-each": Weight(CARE, "all numbers per step: each is of several steps"),
        "steps-refused": Weight(NOTE, "steps, feed gaps and input copies; the window is all that was recorded"),
        "warm-up-inside-window": Weight(CARE, "all shares of the window: they include warm-up"),
        "breaks-inside-window": Weight(CARE, "all shares of the window: they include evaluations and checkpoints"),
        # Doubts about times that the profiler made longer, or recorded too coarsely.
        "python-traced": Weight(
            CARE,
            "idle time: without Python tracing the GPU waits less for the host",
            _by_host,
        ),
        "copy-too-fast": Weight(CARE, "times and bandwidth of these copies"),
        "copy-direction-unknown": Weight(
            CARE, "copies on the GPU: some may go to the host or come from it", _owned("d2d")
        ),
        "coarse-times": Weight(NOTE, "gaps and overlaps shorter than one tick of the clock"),
        "coarse-sizes": Weight(NOTE, "bytes of copies: each may be off by 500 bytes"),
        "missing-strings": Weight(CARE, _NAMES),
        # Doubts about ranks: their clocks, and ranks without a recording.
        "clock-residual": Weight(CARE, f"times between ranks: {_ACROSS}", _clocks),
        "rank-twice": Weight(CARE, f"which GPU is meant by a rank: {_ACROSS}"),
        "ranks-missing": Weight(NOTE, _ACROSS),
        "peers-or-launch": Weight(NOTE, "idle_launch and idle_peers: only their sum is certain"),
        "ranks-in-one-file": Weight(NOTE, "which GPU each rank used"),
        "several-processes-on-gpu": Weight(
            CARE, "all numbers of this GPU, if it stands for several GPUs, one per process", _nameless
        ),
        "exchange-unknown": Weight(CARE, "compute and collective: only their sum is certain"),
        # Doubts about a number that is missing, or is only a bound.
        "collective-bytes-unknown": Weight(NOTE, "bus bandwidth"),
        "operators-in-graphs": Weight(NOTE, "operators and layers of kernels in CUDA graphs"),
        "flops-partly-told": Weight(NOTE, "FLOP/s and MFU: the true values may be higher"),
        "peak-unknown": Weight(NOTE, "MFU"),
        "gpu-metrics-coarse": Weight(
            NOTE, "the metrics during compute, and the limit derived from them: they are approximate"
        ),
        "gpu-metrics-off-clock": Weight(
            CARE, "GPU metrics by owner of the time, and the limit of compute derived from them"
        ),
        "power-coarse": Weight(NOTE, "energy: it is approximate"),
        "feed-or-host": Weight(NOTE, "idle_feed: it includes time in which the host prepares the step"),
        "copy-order-unknown": Weight(NOTE, "idle_feed: it is not given"),
        "sync-upper-bound": Weight(NOTE, "idle_sync: the true value may be lower"),
        "places-unreadable": Weight(NOTE, _LINES),
        "places-few": Weight(NOTE, _LINES),
        "places-not-aligned": Weight(NOTE, _LINES),
    }
)
# The weight of a doubt with an unknown code, such as one of another version of ringscope.
UNKNOWN: Final = Weight(CARE, "the numbers that its text names")
