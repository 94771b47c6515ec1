"""Replicas against one synchronous model: so many devices, each with a process of its own, or one process for all."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from profiles import stats
from profiles.files import write_whole
from profiles.inference.records import Inference, Together

from ..inference import is_file
from ..machine import nvml
from ..machine.describe import usable_cpus
from ..processes.helpers import Helpers
from .infer_steps import LIMIT_S, START_S, Step
from .options import Infer

WAYS = ("replicas", "synchronous")
CPU_BATCH, GPU_BATCH = 32, 256
CPU_MODEL, GPU_MODEL = "cnn_cifar", "resnet50"
AHEAD_S = 0.5  # from the sign to begin until the begin: all processes have seen it by then


def steps(options: Infer, gpus: int, out: Path, found: Inference) -> list[Step]:
    """Two steps for each model: each way by itself."""
    count = options.replicas or max(2, gpus)
    chosen = options.models or ((GPU_MODEL,) if gpus else (CPU_MODEL,))
    batch = max(options.batches) if options.batches else GPU_BATCH if gpus else CPU_BATCH
    return [
        Step(
            f"{model}: {said(way, count, gpus)}, batches of {batch} for each",
            START_S * (count if way == "replicas" else 1) / 2 + START_S + options.seconds,
            partial(measure, model, way, count, gpus, batch, options.seconds, out / "replicas", found),
        )
        for model in chosen
        for way in WAYS
    ]


def said(way: str, count: int, gpus: int) -> str:
    """`2 processes with a GPU each`."""
    kind = "GPU" if gpus >= count else "part of a GPU" if gpus else "part of the CPU"
    return f"{count} processes with a {kind} each" if way == "replicas" else f"one process with {count} devices"


def measure(
    model: str, way: str, count: int, gpus: int, batch: int, seconds: float, folder: Path, found: Inference
) -> None:
    """Run one way and take its row. Raises RingscopeError where a process fails."""
    name = Path(model).stem if is_file(model) else model
    folder = folder / f"{name}-{way}"
    folder.mkdir(parents=True, exist_ok=True)
    for left in [folder / "go", *folder.glob("ready*"), *folder.glob("calls*.json")]:
        left.unlink(missing_ok=True)
    processes, devices = (count, 1) if way == "replicas" else (1, count)
    kind = "GPU" if gpus >= (1 if way == "replicas" else count) else "CPU"
    threads = max(1, usable_cpus() // processes)
    plan = {"model": model, "batch": batch, "devices": devices, "kind": kind, "threads": threads, "seconds": seconds}
    write_whole(folder / "plan.json", json.dumps(plan))
    with Helpers(most=processes) as helpers:
        for number in range(processes):
            argv = [sys.executable, "-m", "harness.inference.together"]
            argv += [str(folder / "plan.json"), str(number), str(folder)]
            helpers.start(argv, folder / f"process{number}.log", visible(number, kind, way))
        helpers.until(lambda: len(list(folder.glob("ready*"))) == processes, LIMIT_S, f"{name}, {way}")
        begin_ns = time.monotonic_ns() + round(AHEAD_S * 1e9)
        write_whole(folder / "go", str(begin_ns))
        helpers.ended(seconds + LIMIT_S, f"{name}, {way}")
    calls = [tuple(call) for path in folder.glob("calls*.json") for call in json.loads(path.read_text())]
    found.together.append(row(name, way, (processes, devices), batch, calls, begin_ns, seconds))


def visible(number: int, kind: str, way: str) -> dict[str, str]:
    """Which GPUs a process sees: a replica its own."""
    if kind == "CPU":
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    gpus = nvml.visible_gpus()
    return {"CUDA_VISIBLE_DEVICES": str(gpus[number % len(gpus)]["uuid"])} if way == "replicas" else {}


def row(
    model: str,
    way: str,
    counts: tuple[int, int],
    batch: int,
    calls: list[tuple[int, ...]],
    begin_ns: int,
    seconds: float,
) -> Together:
    """counts: processes, and devices of each. calls: begin and end; those that end after the window do not count."""
    until_ns = begin_ns + round(seconds * 1e9)
    processes, devices = counts
    within = sum(end <= until_ns for _, end in calls)
    p50, p99 = stats.nearest_ranks(np.array([end - begin for begin, end in calls], np.int64), 50, 99)
    return Together(
        model=model,
        way=way,
        processes=processes,
        devices=devices,
        batch=batch,
        samples_per_s=within * batch * devices / seconds,
        p50_ns=p50,
        p99_ns=p99,
    )
