"""CPU against GPU: measure every model with every batch on both, then find the batch from which the GPU is faster."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from profiles.ground.files import write_whole
from profiles.inference.crossover import crossover
from profiles.inference.records import Call, Inference

from ..inference import models
from ..machine import nvml
from ..processes.helpers import Helpers
from .infer_steps import LIMIT_S, START_S, Step
from .options import Infer

CPU_MODELS = ("dense2", "mlp", "cnn_cifar")
GPU_MODELS = (*CPU_MODELS, "resnet50")
BATCHES = (1, 10, 100, 1000)
POINT_S = 0.3  # seconds of calls per measurement
NARROWED = 6  # measurements that narrowing a crossover may take


def steps(options: Infer, gpus: int, out: Path, found: Inference) -> list[Step]:
    """One step for each model, each in its own process, so that a failure or a full memory affects only that model."""
    chosen = options.models or (GPU_MODELS if gpus else CPU_MODELS)
    batches = options.batches or BATCHES
    points = len(batches) * (2 if gpus else 1) + (2 * NARROWED if gpus else 0)
    return [
        Step(
            f"{model}: batches of {', '.join(map(str, batches))} on {'CPU and GPU' if gpus else 'the CPU'}",
            START_S + 2 * POINT_S * points,
            partial(measure, model, batches, out / "devices", found),
        )
        for model in chosen
    ]


def measure(model: str, batches: tuple[int, ...], folder: Path, found: Inference) -> None:
    """Measure one model in a process and add its rows to `found`. Raises RingscopeError if the process fails."""
    folder.mkdir(exist_ok=True)
    name = models.named(model)
    plan, rows, log = (folder / f"{name}.{end}" for end in ("plan.json", "jsonl", "log"))
    write_whole(plan, json.dumps({"model": model, "batches": sorted(batches), "least_s": POINT_S}))
    rows.unlink(missing_ok=True)
    try:
        with Helpers() as helpers:
            argv = [sys.executable, "-m", "harness.inference.devices", str(plan), str(rows)]
            helpers.start(argv, log, first_gpu())
            helpers.ended(LIMIT_S + 60 * len(batches), name)
    finally:
        take(rows, found)


def first_gpu() -> dict[str, str]:
    """Environment variables that let a process see only the first GPU, so that its recording holds no other."""
    gpus = nvml.visible_gpus()
    return {"CUDA_VISIBLE_DEVICES": str(gpus[0]["uuid"])} if gpus else {}


def take(rows: Path, found: Inference) -> None:
    """Add the process's rows to the report, also the crossover if both devices were measured with a common batch."""
    mine: list[Call] = []
    for line in rows.read_text().splitlines() if rows.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:  # the process was killed while it wrote this line
            found.failures.append({"what": rows.stem, "why": f"its process ended while it wrote a result; see {rows}"})
            continue
        if "failed" in row:
            where = f" on the {row['device']} with {row['batch']}" if row["device"] else ""
            found.failures.append({"what": f"{row['model']}{where}", "why": row["failed"]})
        else:
            mine.append(Call(**row))
    mine.sort(key=lambda call: (call.batch, call.device))
    found.calls += mine
    cpu, gpu = ([call for call in mine if call.device == device] for device in ("CPU", "GPU"))
    if {call.batch for call in cpu} & {call.batch for call in gpu}:
        found.crossovers.append(crossover(cpu, gpu))
