"""Doubts about GPU metrics and power. `where` is the JSON pointer of the GPU, such as `/gpus/0`."""

from __future__ import annotations

from ..ground import numbers
from ..model.timeline import Doubt


def coarse(period_ns: int, step_ns: int | None, mixed: float, where: str) -> Doubt:
    """step_ns: the median step, if it is shorter than a sample. mixed: the share of compute in samples that hold other
    work or idle time, too."""
    why = (
        f"and steps of {numbers.duration(step_ns)} are shorter"
        if step_ns is not None
        else f"and {numbers.share(mixed)} of compute lies in samples that hold other work or idle time, too"
    )
    return Doubt(
        "gpu-metrics-coarse",
        f"GPU metrics are means over {numbers.duration(period_ns)}, {why}: the metrics during compute, and the limit "
        "of compute derived from them, are approximate",
        "sample more often (nsys --gpu-metrics-frequency, at most 200000 Hz), or train with a larger batch",
        (f"{where}/gpu_metrics/bound_ns", f"{where}/gpu_metrics/means"),
    )


def off_clock(samples: int, period_ns: int, where: str) -> Doubt:
    by = f"{numbers.duration(abs(samples) * period_ns)} {'back' if samples > 0 else 'ahead'}"
    return Doubt(
        "gpu-metrics-off-clock",
        f"the GPU metrics agree better with the kernels if they are moved by {by}: their clock differs from the clock "
        "of the kernels, or another process used the GPU",
        "record again, and let no other process use the GPU",
        (f"{where}/gpu_metrics",),
    )


def power_coarse(readings: int, by_order: bool, where: str) -> Doubt:
    """by_order: True if the recording has the power of several GPUs without their names."""
    whose = "; readings are assigned to GPUs by the order of the GPUs alone" if by_order else ""
    return Doubt(
        "power-coarse",
        f"the sensor gave only {numbers.counted(readings, 'different reading')} of the GPU's power in the window: the "
        f"energy is approximate{whose}",
        "record more steps: NVML's sensor gives some ten values per second, even if it is read more often",
        (f"{where}/gpu_metrics/energy",),
    )
