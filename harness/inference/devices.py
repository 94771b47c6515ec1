"""`python -m harness.inference.devices PLAN.json OUT.jsonl`: time calls of a model on the CPU and on a GPU.

PLAN: {"model": name, "batches": [samples], "least_s": seconds per point}. OUT gets one line of JSON for each (device,
batch): a `Call` (profiles.inference.records), or {"model", "device", "batch", "failed": reason}; with a GPU also for
batches between two of these, to find from which one on the GPU is faster.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from profiles.ground import stats
from profiles.inference import crossover, parts
from profiles.inference.records import Call

from ..launch import tensorflow_profiler
from ..training.worker import what_became
from . import models

Tell = Callable[[dict[str, Any]], None]
WARM_UP, LEAST_CALLS, MOST_CALLS = 3, 10, 1000
RECORDED_CALLS = 20


class Measuring:
    """Measures one model on the CPU and, if there is one, on the first GPU. Each (device, batch) is measured once."""

    def __init__(self, name: str, places: Sequence[str], least_s: float, tell: Tell) -> None:
        self.name, self.least_s, self._tell = models.named(name), least_s, tell
        self._loaded = {_kind(place): models.load(name, place) for place in places}
        self.calls: dict[tuple[str, int], Call] = {}

    def point(self, device: str, batch: int) -> Call | None:
        """Measure a call with this batch. If the call fails, report the failure and return None."""
        if (device, batch) not in self.calls:
            try:
                self.calls[device, batch] = self._measure(device, batch)
            # a failure on one device is reported as a row; the other device is still measured
            except Exception as error:
                self._tell({"model": self.name, "device": device, "batch": batch, "failed": what_became(error)[1]})
                return None
            self._tell(asdict(self.calls[device, batch]))
        return self.calls[device, batch]

    def _measure(self, device: str, batch: int) -> Call:
        loaded = self._loaded[device]
        x = models.samples(loaded.input_shape, loaded.input_dtype, batch)

        def call() -> None:
            loaded.answer(x).numpy()

        took = timed(call, self.least_s)
        median, p95 = stats.nearest_ranks(took, 50, 95)
        found = Call(self.name, loaded.parameters, device, batch, len(took), median, p95)
        return (
            _with_parts(found, call)
            if device == "GPU"
            else replace(found, why="the operators of this call are not recorded")
        )

    def narrow(self) -> None:
        """Measure batches between the last one at which the CPU is faster and the first at which the GPU is."""
        on = {device: [call for (at, _), call in self.calls.items() if at == device] for device in ("CPU", "GPU")}
        until, beyond = crossover.between(on["CPU"], on["GPU"])
        if until is not None and beyond is not None:
            crossover.narrowed(until, beyond, self._gpu_is_faster)

    def _gpu_is_faster(self, batch: int) -> bool:
        cpu, gpu = self.point("CPU", batch), self.point("GPU", batch)
        return cpu is not None and gpu is not None and gpu.call_ns < cpu.call_ns


def timed(call: Callable[[], object], least_s: float) -> list[int]:
    """Durations of calls in ns: at least LEAST_CALLS and at most MOST_CALLS within `least_s`, after WARM_UP uncounted
    calls."""
    for _ in range(WARM_UP):
        call()
    took: list[int] = []
    until = time.perf_counter_ns() + round(least_s * 1e9)
    while len(took) < LEAST_CALLS or (time.perf_counter_ns() < until and len(took) < MOST_CALLS):
        began = time.perf_counter_ns()
        call()
        took.append(time.perf_counter_ns() - began)
    return took


def _with_parts(found: Call, call: Callable[[], object]) -> Call:
    """Add to a call its copies, launches and compute, as recorded by TensorFlow's profiler."""
    from profiles.measuring.analysis import measure

    with tempfile.TemporaryDirectory() as folder:
        try:
            with tensorflow_profiler.opened(Path(folder)):
                for _ in range(RECORDED_CALLS):
                    call()
            (gpu,) = measure(folder, window="capture").gpus
        except Exception as error:  # if the profiler fails, the call's own time is still reported
            return replace(found, why=f"no recording of this call: {what_became(error)[1]}")
    return parts.of_call(found, gpu, RECORDED_CALLS)


def _kind(place: str) -> str:
    return place.strip("/").split(":")[0]


def main(plan_path: str, out: str) -> int:
    plan = json.loads(Path(plan_path).read_text())
    places = ["/CPU:0", *(["/GPU:0"] if models.gpus() else [])]
    with open(out, "a", buffering=1) as file:

        def tell(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")

        try:
            measuring = Measuring(plan["model"], places, plan["least_s"], tell)
        except Exception as error:  # a failure is reported as a row, as in `point`
            name = models.named(plan["model"])
            tell({"model": name, "device": None, "batch": None, "failed": what_became(error)[1]})
            return 0
        for batch in plan["batches"]:
            for place in places:
                measuring.point(_kind(place), batch)
        if len(places) > 1:
            measuring.narrow()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
