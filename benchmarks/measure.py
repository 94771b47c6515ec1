"""Where measuring spends its time: the parts of `profiles.analyse`, on a recording in memory.

    python -m benchmarks.generate run.sqlite --format nsys --steps 500 --kernels 1000 --gpus 4
    python -m benchmarks.measure run.sqlite [--times 5]

Each time runs in a process of its own. GPUs are measured two at a time: `wall` is how long at least one of them was in
the part, `CPU` is the sum over all of them. Of several times the smallest counts. The ledger is everything that gives
a nanosecond its owner: classes, causes of idle, input copies, and the ledgers of the steps.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# name of the part -> the functions it is made of, each under the name that its caller knows it by
PARTS = {
    "clocks": ("gpus.clock.ends", "measuring.together.aligned"),
    "GPUs and launch calls": ("gpus.gather.take", "gpus.gather.made_of"),
    "collectives": ("metrics.message_sizes.moved", "metrics.collectives.Matched", "metrics.collectives.measure"),
    "steps": ("steps.find.find",),
    "the ledger": ("measuring.one_recording.account", "metrics.gpu._step_rows", "metrics.gpu._batch_gap_ledger"),
    "kernels": ("metrics.kernels.measure",),
    "copies": ("metrics.copies.measure", "metrics.gpu._input_copies", "metrics.gpu.exposed_inputs"),
    "the host meanwhile": (
        "metrics.gpu.host_while_idle",
        "metrics.gpu.held_launches",
        "metrics.gpu.calling_threads",
    ),
    "verdicts": ("verdicts.find", "verdicts.whatif.each"),
}
# Parts that share the GPUs out among threads themselves, while nothing else runs.
ALONE = ("clocks", "GPUs and launch calls", "verdicts")


def timed(
    call: Callable[..., Any], spans: list[tuple[float, float, float]], cpu_s: Callable[[], float]
) -> Callable[..., Any]:
    """The function, timed: it notes when it began and ended, and its CPU time by the clock `cpu_s`."""

    def noted(*arguments: Any, **named: Any) -> Any:
        began, cpu = time.perf_counter(), cpu_s()
        try:
            return call(*arguments, **named)
        finally:
            spans.append((began, time.perf_counter(), cpu_s() - cpu))

    return noted


def once(path: Path) -> dict[str, tuple[float, float]]:
    """(wall, CPU) seconds of each part, of reading, and of measuring as a whole."""
    from profiles import readers
    from profiles.measuring import analysis

    spans: dict[str, list[tuple[float, float, float]]] = {name: [] for name in PARTS}
    for part, calls in PARTS.items():
        for call in calls:
            module, _, name = call.rpartition(".")
            owner = importlib.import_module(f"profiles.{module}")
            cpu_s = time.process_time if part in ALONE else time.thread_time
            setattr(owner, name, timed(getattr(owner, name), spans[part], cpu_s))
    began, cpu = time.perf_counter(), time.process_time()
    timeline = readers.read(path)
    read, read_cpu = time.perf_counter(), time.process_time()
    analysis.analyse(timeline)
    found = {"reading": (read - began, read_cpu - cpu)}
    found["measuring"] = time.perf_counter() - read, time.process_time() - read_cpu
    return found | {part: (together(some), sum(one[2] for one in some)) for part, some in spans.items()}


def together(spans: list[tuple[float, float, float]]) -> float:
    """How long at least one of the spans was under way."""
    total, reach = 0.0, float("-inf")
    for began, ended, _ in sorted(spans):
        total += max(0.0, ended - max(began, reach))
        reach = max(reach, ended)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.path)))
        return
    runs = []
    with suppress(KeyboardInterrupt):
        for _ in range(options.times):
            command = [sys.executable, "-m", "benchmarks.measure", "--once", str(options.path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
    print(f"{'':24}{'wall':>9}{'CPU':>9}   least of {len(runs)}")
    for part in runs[0] if runs else ():
        wall, cpu = (min(run[part][at] for run in runs) for at in (0, 1))
        print(f"{part:24}{wall:7.3f} s{cpu:7.3f} s")


if __name__ == "__main__":
    main()
