"""Run the trials of `ringscope doctor`: copies, an all-reduce under the real launcher, and a training on all ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell

from .. import launch
from ..processes.lifeline import Lifeline
from ..processes.outcome import line_with
from . import equality
from .checks import FAILURE, OK, UNKNOWN, WARNING, Check, visible
from .equality import TOLERANCE, Equality

RUN_LIMIT_S = 240
# Below this share of the pinned bandwidth, pageable memory limits the input.
PAGEABLE_SHARE = 0.5
# Bandwidth in one direction of one first-generation NVLink (NVIDIA Tesla P100 white paper); newer ones have 25 and
# more.
NVLINK_GB_PER_S = 20.0
NAMES_ERROR = re.compile("rror")
SMALL = 1 << 16  # bytes; the time of an all-reduce this small is latency alone


@dataclass(frozen=True, slots=True)
class Trial:
    """A check that runs a program, and about how many seconds it takes."""

    name: str
    expected_s: float
    run: Callable[[], list[Check]]


def plan(machine: dict[str, Any], *, ranks: int | None, launcher: str) -> list[Trial]:
    """The trials for this machine. ranks: None for one rank per GPU, or for 2 ranks if there is no GPU."""
    gpus = visible(len(machine["gpus"]))
    count = ranks or gpus or 2
    return [
        Trial("copies", 3.0 * gpus, lambda: copies(machine)),
        Trial("all-reduce", 10, lambda: [allreduce(machine, ranks=count, launcher=launcher)]),
        Trial("training", 25, lambda: [training(machine, ranks=count, launcher=launcher)]),
    ]


def copies(machine: dict[str, Any]) -> list[Check]:
    """Measure the host-device copy bandwidth of each GPU, from pageable and from pinned memory."""
    if not machine["gpus"]:
        return [Check("copies", UNKNOWN, "no GPU")]
    done = _run([sys.executable, "-m", "harness.doctor.bandwidth"], dict(os.environ))
    if isinstance(done, str):
        return [Check("copies", FAILURE, done, "a GPU that cannot copy cannot train: read nvidia-smi and dmesg")]
    return [judge_copies(found) for found in json.loads(done.stdout.splitlines()[-1])]


def judge_copies(found: dict[str, Any]) -> Check:
    pageable, pinned = found["pageable"], found["pinned"]
    text = (
        f"to the GPU {pageable['h2d_gb_per_s']:.1f} GB/s from pageable memory, {pinned['h2d_gb_per_s']:.1f} from "
        f"pinned; back {pageable['d2h_gb_per_s']:.1f} and {pinned['d2h_gb_per_s']:.1f}"
    )
    name = f"copies gpu {found['device']}"
    if pageable["h2d_gb_per_s"] < PAGEABLE_SHARE * pinned["h2d_gb_per_s"]:
        ratio = pinned["h2d_gb_per_s"] / pageable["h2d_gb_per_s"]
        remedy = f"batches from pinned memory would arrive {ratio:.1f} times as fast: ringscope bench --feeds pinned"
        return Check(name, WARNING, text, remedy, found)
    return Check(name, OK, text, None, found)


def allreduce(machine: dict[str, Any], *, ranks: int, launcher: str) -> Check:
    """Measure the bus bandwidth of one large all-reduce under the real launcher, and check the sum."""
    if reason := _cannot_launch(machine, ranks):
        return Check("all-reduce", UNKNOWN, reason)
    size = (512 if machine["gpus"] else 16) << 20
    with tempfile.TemporaryDirectory(prefix="ringscope-doctor-") as folder:
        out = Path(folder) / "allreduce.json"
        sizes = map(str, (SMALL, size))
        rank_argv = [sys.executable, "-m", "harness.doctor.allreduce", "--bytes", *sizes, "--out", str(out)]
        with Lifeline(lines=ranks + 1) as lifeline:
            at = lifeline.address
            job = launch.command(rank_argv, ranks=ranks, launcher=launcher, environ=os.environ, lifeline=at)
            done = _run(launch.keeper(job.argv, lifeline=at), job.env | {"TF_CPP_MIN_LOG_LEVEL": "3"})
        if isinstance(done, str):
            return Check("all-reduce", FAILURE, done, _by_hand(ranks, launcher))
        found = json.loads(out.read_text())
    return judge_allreduce(found, launcher, machine)


def judge_allreduce(found: dict[str, Any], launcher: str, machine: dict[str, Any]) -> Check:
    """Judge the result of an all-reduce. machine: from `machine.describe`; its GPUs and links tell what to expect."""
    text = (
        f"{found['bus_gb_per_s']:.2f} GB/s bus bandwidth, {found['ranks']} ranks on {found['device']}, "
        f"{found['bytes'] >> 20} MiB in {found['time_ns'] / 1e6:.1f} ms, {launcher}"
    )
    if not found["right"]:
        remedy = (
            "the sum over ranks is wrong: rebuild Horovod (scripts/build_horovod.py); if it stays wrong, check the "
            "driver and NCCL"
        )
        return Check("all-reduce", FAILURE, text, remedy, found)
    if found["device"] == "cpu" and machine["gpus"]:
        remedy = "the sum was made in host memory: build Horovod with NCCL (scripts/build_horovod.py, nvcc on the PATH)"
        return Check("all-reduce", WARNING, text, remedy, found)
    joins = {join for row in machine["topology"] or [] for join in row if join != "X"}
    linked = joins and all(join.startswith("NV") for join in joins)
    if found["device"] == "gpu" and linked and found["bus_gb_per_s"] < NVLINK_GB_PER_S:
        remedy = "slower than one NVLink: NCCL_DEBUG=INFO shows the path; unset NCCL_P2P_DISABLE, enlarge /dev/shm"
        return Check("all-reduce", WARNING, text, remedy, found)
    return Check("all-reduce", OK, text, None, found)


def _cannot_launch(machine: dict[str, Any], ranks: int) -> str | None:
    if machine["libraries"]["horovod"] is None:
        return "no Horovod"
    if ranks == 1:
        return "one rank has no other to exchange with"
    if machine["gpus"] and ranks > visible(len(machine["gpus"])):
        return f"{ranks} ranks need {ranks} GPUs, and there are {len(machine['gpus'])}"
    return None


def training(machine: dict[str, Any], *, ranks: int, launcher: str) -> Check:
    """Check, in both step modes, that N ranks train to the same weights as one rank on the joined batches. Without a
    GPU for each rank they train on the CPU, which tests only that gradients are exchanged."""
    if machine["libraries"]["horovod"] is None or machine["libraries"]["tensorflow"] is None:
        return Check("training", UNKNOWN, "no Horovod or no TensorFlow")
    ranks = max(2, ranks)
    environ = dict(os.environ)
    where = f"{ranks} ranks"
    if ranks > visible(len(machine["gpus"])):
        environ["CUDA_VISIBLE_DEVICES"] = ""
        where += " on the CPU"
    cell = Cell("mlp", ranks=ranks, per_rank_batch=16, steps=10, warmup=0)
    with tempfile.TemporaryDirectory(prefix="ringscope-doctor-") as folder, Lifeline(lines=ranks + 1) as lifeline:

        def start(ranks: int) -> list[str]:
            """The launcher's command line, without the rank's command."""
            job = launch.command([], ranks=ranks, launcher=launcher, environ=environ, lifeline=lifeline.address)
            return launch.keeper(job.argv, lifeline=lifeline.address)

        try:
            found = equality.check(
                [cell, replace(cell, step="compiled")],
                start,
                Path(folder),
                env=launch.command([], ranks=ranks, launcher=launcher, environ=environ).env,
                timeout_s=RUN_LIMIT_S,
            )
        except RingscopeError as error:
            said = why(Path(folder, f"log-{ranks}.txt").read_text()) or str(error).partition("\n")[0]
            remedy = (
                f"to see all output: ringscope train --model mlp --ranks {ranks} --launcher {launcher}, and its logs"
            )
            return Check("training", FAILURE, said, remedy)
    return judge_training(found, f"{where}, {launcher}")


def judge_training(found: list[Equality], where: str) -> Check:
    data = {
        each.cell.step: {
            "max_difference": each.max_difference,
            "tolerance": TOLERANCE,
            "ranks_bit_equal": each.trainable_bit_equal,
            "steps": each.cell.steps,
        }
        for each in found
    }
    text = "; ".join(
        f"{each.cell.step}: weights within {each.max_difference:.1e} of a training on one rank, "
        f"ranks {'bit-equal' if each.trainable_bit_equal else 'DIFFER'}"
        for each in found
    )
    text = f"{where}, {found[0].cell.steps} steps: {text}"
    if all(each.holds for each in found):
        return Check("training", OK, text, None, data)
    remedy = "N ranks train N models: rebuild Horovod (scripts/build_horovod.py) against this TensorFlow and Keras"
    return Check("training", FAILURE, text, remedy, data)


def _run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str] | str:
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"not done within {RUN_LIMIT_S} s: a rank hangs"
    except FileNotFoundError:
        return f"{argv[0]} is not on the PATH"
    if done.returncode != 0:
        return why(done.stderr + done.stdout) or f"exit code {done.returncode}"
    return done


def why(output: str) -> str:
    """The line of a failed command's output that tells most: the first that names an error, else the last."""
    return line_with(NAMES_ERROR, output) or output.strip().rpartition("\n")[2][:300]


def _by_hand(ranks: int, launcher: str) -> str:
    start = f"mpirun -np {ranks}" if launcher == "mpirun" else f"horovodrun -np {ranks}"
    return f"to see all of its output: {start} python -m harness.doctor.allreduce --out /tmp/allreduce.json"
