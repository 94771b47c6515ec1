"""Find the batch size from which a GPU is faster than the CPU, and why: a call's fixed cost and its cost per sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ground import numbers
from .records import Call, Crossover


@dataclass(frozen=True, slots=True)
class Line:
    """The time of a call as a straight line over the batch size, through the smallest and the largest batch measured. A
    call with b samples takes fixed_ns + per_sample_ns x b."""

    fixed_ns: float
    per_sample_ns: float


def line(calls: Sequence[Call]) -> Line | None:
    """The line of one model on one device; None if only one batch was measured."""
    ordered = sorted(calls, key=lambda call: call.batch)
    if len(ordered) < 2:
        return None
    low, high = ordered[0], ordered[-1]
    per_sample = max(high.call_ns - low.call_ns, 0) / (high.batch - low.batch)
    return Line(max(low.call_ns - per_sample * low.batch, 0.0), per_sample)


def between(cpu: Sequence[Call], gpu: Sequence[Call]) -> tuple[int | None, int | None]:
    """(largest batch below the crossover, smallest batch from which on the GPU is faster); None where there is no such
    batch. Only batches that both devices ran are compared."""
    slower = {call.batch: call.call_ns for call in cpu}
    faster = {call.batch: call.call_ns for call in gpu}
    both = sorted(slower.keys() & faster.keys())
    wins = [faster[batch] < slower[batch] for batch in both]
    from_here = len(wins)
    while from_here and wins[from_here - 1]:
        from_here -= 1
    return both[from_here - 1] if from_here else None, both[from_here] if from_here < len(both) else None


def narrowed(until: int, beyond: int, faster: Callable[[int], bool], *, share: float = 0.1) -> tuple[int, int]:
    """Narrow down the crossover between batch `until`, where the CPU is faster, and batch `beyond`, where the GPU is.

    The span is halved until both are neighbours, or at most `share` of `until` apart. `faster` measures one batch
    and tells if the GPU is faster. Returns the narrowed (until, beyond).
    """
    while beyond - until > max(1, int(share * until)):
        middle = (until + beyond) // 2
        until, beyond = (until, middle) if faster(middle) else (middle, beyond)
    return until, beyond


def crossover(cpu: Sequence[Call], gpu: Sequence[Call]) -> Crossover:
    """The crossover of one model. Both devices must have been measured with the same batches."""
    until, beyond = between(cpu, gpu)
    return Crossover(cpu[0].model, until, beyond, _words(until, beyond, cpu, gpu))


def _words(until: int | None, beyond: int | None, cpu: Sequence[Call], gpu: Sequence[Call]) -> str:
    if until is None:
        said = f"the GPU is faster from batches of {beyond} on, the smallest measured"
    elif beyond is None:
        said = f"the CPU is faster up to batches of {until}, the largest measured"
    else:
        said = f"the CPU is faster up to batches of {until:,}, the GPU from {beyond:,} on"
    return ". ".join([said, *_reasons(until, beyond, cpu, gpu)])


def _reasons(until: int | None, beyond: int | None, cpu: Sequence[Call], gpu: Sequence[Call]) -> list[str]:
    """Sentences that explain the crossover: the parts of a GPU's call just below it, and each device's costs."""
    reasons = []
    at = until if until is not None else beyond
    ours = next(call for call in gpu if call.batch == at)
    theirs = next(call for call in cpu if call.batch == at)
    if ours.compute_ns is not None and ours.copies_ns is not None and ours.launches_ns is not None:
        kernels = f" of {ours.kernels:,} kernels" if ours.kernels else ""
        reasons.append(
            f"With batches of {at:,} the GPU takes {numbers.duration(ours.call_ns)}: launches{kernels} "
            f"{numbers.duration(ours.launches_ns)}, copies {numbers.duration(ours.copies_ns)}, compute "
            f"{numbers.duration(ours.compute_ns)}; the CPU takes {numbers.duration(theirs.call_ns)}"
        )
    else:
        why = f" ({ours.why})" if ours.why else ""
        reasons.append(
            f"With batches of {at:,} the GPU takes {numbers.duration(ours.call_ns)}, "
            f"the CPU {numbers.duration(theirs.call_ns)}; "
            f"the GPU's times of launches, copies and compute are not known{why}"
        )
    on_gpu, on_cpu = line(gpu), line(cpu)
    if on_gpu is not None and on_cpu is not None:
        reasons.append(
            f"A call costs the GPU {numbers.duration(round(on_gpu.fixed_ns))} plus "
            f"{numbers.duration(on_gpu.per_sample_ns)} per sample, the CPU "
            f"{numbers.duration(round(on_cpu.fixed_ns))} plus {numbers.duration(on_cpu.per_sample_ns)} per sample"
        )
    return reasons
