"""Replicas against one synchronous model: a process for each device, or one process for all devices."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from profiles.ground import stats
from profiles.ground.files import write_whole
from profiles.ground.numbers import counted
from profiles.ground.threads import usable_cpus
from profiles.inference.records import Inference, Together

from ..inference import models
from ..machine import nvml
from ..processes.helpers import Helpers
from .infer_steps import LIMIT_S, START_S, Step
from .options import Infer

CPU_BATCH, GPU_BATCH = 32, 256
CPU_MODEL, GPU_MODEL = "cnn_cifar", "resnet50"
AHEAD_S = 0.5  # seconds between the file `go` and the start of the load, so that all processes have read it


def steps(options: Infer, gpus: int, out: Path, found: Inference) -> list[Step]:
    """Two steps for each model: one for the replicas, one for the synchronous model."""
    count = options.replicas or max(2, gpus)
    chosen = options.models or ((GPU_MODEL,) if gpus else (CPU_MODEL,))
    batch = max(options.batches) if options.batches else GPU_BATCH if gpus else CPU_BATCH
    return [
        Step(
            f"{model}: {said(way, gpus)}, batches of {way.batch} for each",
            START_S * way.processes / 2 + START_S + options.seconds,
            partial(measure, model, way, "GPU" if gpus else "CPU", options.seconds, out / "replicas", found),
        )
        for model in chosen
        for way in ways(count, batch, gpus)
    ]


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    processes: int
    devices: int  # number of devices in each process
    batch: int  # samples per device and call


def ways(count: int, batch: int, gpus: int) -> tuple[Way, Way]:
    """Both ways, with the same number of samples at once. Replicas may share a GPU; the synchronous model uses each GPU
    once."""
    devices = min(count, gpus) if gpus else count
    return Way("replicas", count, 1, batch), Way("synchronous", 1, devices, batch * count // devices)


def said(way: Way, gpus: int) -> str:
    if way.name == "synchronous":
        return f"one process with {counted(way.devices, 'device')}"
    kind = "GPU" if gpus >= way.processes else "part of a GPU" if gpus else "part of the CPU"
    return f"{way.processes} processes with a {kind} each"


def measure(model: str, way: Way, kind: str, seconds: float, folder: Path, found: Inference) -> None:
    """Run one way and add its row to `found`. Raises RingscopeError if a process fails."""
    name = models.named(model)
    folder = folder / f"{name}-{way.name}"
    folder.mkdir(parents=True, exist_ok=True)
    for left in [folder / "go", *folder.glob("ready*"), *folder.glob("calls*.json")]:
        left.unlink(missing_ok=True)
    threads = max(1, usable_cpus() // way.processes)
    plan = {"model": model, "batch": way.batch, "devices": way.devices, "kind": kind}
    write_whole(folder / "plan.json", json.dumps(plan | {"threads": threads, "seconds": seconds}))
    with Helpers(most=way.processes) as helpers:
        for number in range(way.processes):
            argv = [sys.executable, "-m", "harness.inference.together"]
            argv += [str(folder / "plan.json"), str(number), str(folder)]
            helpers.start(argv, folder / f"process{number}.log", visible(number, kind, way.name))
        helpers.until(lambda: len(list(folder.glob("ready*"))) == way.processes, LIMIT_S, f"{name}, {way.name}")
        begin_ns = time.monotonic_ns() + round(AHEAD_S * 1e9)
        write_whole(folder / "go", str(begin_ns))
        helpers.ended(seconds + LIMIT_S, f"{name}, {way.name}")
    calls = [tuple(call) for path in folder.glob("calls*.json") for call in json.loads(path.read_text())]
    found.together.append(row(name, way, calls, begin_ns, seconds))


def visible(number: int, kind: str, way: str) -> dict[str, str]:
    """Environment variables that set a process's visible GPUs: one GPU for each replica, all for the synchronous
    model."""
    if kind == "CPU":
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    gpus = nvml.visible_gpus()
    return {"CUDA_VISIBLE_DEVICES": str(gpus[number % len(gpus)]["uuid"])} if way == "replicas" else {}


def row(model: str, way: Way, calls: list[tuple[int, ...]], begin_ns: int, seconds: float) -> Together:
    """The result of one way. calls: (begin, end) in ns; a call that ends after the window does not count in the
    throughput."""
    until_ns = begin_ns + round(seconds * 1e9)
    within = sum(end <= until_ns for _, end in calls)
    p50, p99 = stats.nearest_ranks(np.array([end - begin for begin, end in calls], np.int64), 50, 99)
    return Together(
        model=model,
        way=way.name,
        processes=way.processes,
        devices=way.devices,
        batch=way.batch,
        samples_per_s=within * way.batch * way.devices / seconds,
        p50_ns=p50,
        p99_ns=p99,
    )
