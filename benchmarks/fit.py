"""`model.fit` with README's two lines beside Keras on JAX, PyTorch and MirroredStrategy: the same models and batches.

    python -m benchmarks.fit run --models resnet50,decoder --ways ring,jax,torch --gpus 1,2 --out fit.jsonl
    python -m benchmarks.fit table fit.jsonl > table.md
    python -m benchmarks.fit run --models lstm --ways ring,plain --gpus 0 --samples 32 --steps 3 --out try.jsonl

`run` starts each model in each way, one way after the other, each in a process of its own, and appends a line of JSON
for each to --out. `table` writes what they say as Markdown: samples per second, time from the process's start to the
end of the first step, peak GPU memory, and how many times the others' samples per second ring's are. With --gpus 0
everything trains on the CPU: to try this file, not to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.fit_families import FAMILIES
from benchmarks.fit_today import TODAY

MODELS = FAMILIES | TODAY
WAYS = ("ring", "plain", "jax", "torch", "mirrored")
NAMES = {
    "ring": "ring",
    "plain": "plain `fit`",
    "jax": "Keras on JAX",
    "torch": "torch.compile + DDP",
    "mirrored": "MirroredStrategy",
}
OF_OTHERS = ("jax", "torch")  # they bring CUDA libraries of their own
CACHE = "RINGSCOPE_XLA_CACHE"  # names the directory of ring's compiled programs


@dataclass(frozen=True, slots=True)
class Run:
    """One start of one model. start: 1 with an empty compilation cache, 2 with what the first has left there."""

    model: str
    way: str
    gpus: int
    start: int = 1

    def argv(self, options: argparse.Namespace) -> list[str]:
        ranks = max(1, self.gpus)
        python = [sys.executable, "-m", "benchmarks.peers.fit_keras", "--way", self.way]
        if self.way == "torch":
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            python = [sys.executable, *(launcher if ranks > 1 else []), "-m", "benchmarks.peers.fit_torch"]
        elif self.way == "ring" and ranks > 1:
            python = ["horovodrun", "-np", str(ranks), *python]
        elif self.way != "ring":
            python += ["--gpus", str(ranks)]
        argv = [*python, "--model", self.model, "--steps", str(options.steps), "--epochs", str(options.epochs)]
        return argv + (["--samples", str(options.samples)] if options.samples else [])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run", help="train, and append what was measured")
    runs.add_argument("--models", default=",".join(FAMILIES), help=f"of {', '.join(MODELS)}; default: %(default)s")
    runs.add_argument("--ways", default="ring,jax,torch", help=f"of {', '.join(WAYS)}; default: %(default)s")
    runs.add_argument("--gpus", default="1", help="numbers of GPUs, default: %(default)s")
    runs.add_argument("--at-once", type=int, default=1, metavar="N", help="runs of one GPU side by side, a GPU each")
    runs.add_argument("--starts", type=int, choices=(1, 2), default=1, help="2: ring twice, the second from its cache")
    runs.add_argument("--samples", type=int, help="of one GPU's batch; default: the model's own")
    runs.add_argument("--steps", type=int, default=60, help="of an epoch")
    runs.add_argument("--epochs", type=int, default=3)
    runs.add_argument("--time-limit", type=float, default=600, metavar="S", help="of one run")
    runs.add_argument("--stop-after", type=float, metavar="S", help="begin no run later than this")
    runs.add_argument("--unset", default="", help="variables that jax and torch do not get, as LD_LIBRARY_PATH")
    runs.add_argument("--out", type=Path, required=True)
    tables = verbs.add_parser("table", help="write what was measured as Markdown")
    tables.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args(argv)
    if options.verb == "table":
        print(table([json.loads(line) for path in options.files for line in path.read_text().splitlines()]))
        return 0
    return train(options)


def train(options: argparse.Namespace) -> int:
    """Every run that is asked for; returns 1 where one failed."""
    models, ways = options.models.split(","), options.ways.split(",")
    for given, known in ((models, MODELS), (ways, WAYS)):
        for one in given:
            if one not in known:
                print(f"{one!r} is none of {', '.join(known)}", file=sys.stderr)
                return 2
    began_s, lock, failed = time.monotonic(), Lock(), []
    with tempfile.TemporaryDirectory() as caches:

        def take(run: Run, devices: str) -> None:
            if options.stop_after and time.monotonic() - began_s > options.stop_after:
                return
            row = _measured(run, devices, Path(caches) / f"{run.model}-{run.gpus}", options)
            with lock:
                if "error" in row:
                    failed.append(run)
                with options.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
                said = row.get("error") or f"{row['samples_per_s']:,} samples/s, first step {row['first_step_s']} s"
                print(f"{time.monotonic() - began_s:6.0f} s  {run.model} {run.way} x {run.gpus}: {said}", flush=True)

        for gpus in map(int, options.gpus.split(",")):
            free: queue.Queue[str] = queue.Queue()
            slots = options.at_once if gpus == 1 else 1
            for slot in range(slots):
                free.put(str(slot) if slots > 1 or gpus == 1 else ",".join(map(str, range(gpus))) or "-1")

            def model_in_turn(model: str, gpus: int = gpus, free: queue.Queue[str] = free) -> None:
                devices = free.get()
                try:
                    for way in ways:
                        for start in range(1, 1 + (options.starts if way == "ring" else 1)):
                            take(Run(model, way, gpus, start), devices)
                finally:
                    free.put(devices)

            with ThreadPoolExecutor(slots) as pool:
                list(pool.map(model_in_turn, models))
    return 1 if failed else 0


def _measured(run: Run, devices: str, cache: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What the run says of itself, or why it says nothing."""
    environment = {name: value for name, value in os.environ.items() if name not in _unset(run, options)}
    environment |= {"CUDA_VISIBLE_DEVICES": devices, CACHE: str(cache), "PYTHONUNBUFFERED": "1"}
    if run.way == "jax":
        environment |= {"KERAS_BACKEND": "jax"} | ({"JAX_PLATFORMS": "cpu"} if run.gpus == 0 else {})
    facts = {"model": run.model, "way": run.way, "gpus": run.gpus, "start": run.start}
    argv = run.argv(options)
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=options.time_limit)
    except subprocess.TimeoutExpired:
        return facts | {"error": f"took longer than {options.time_limit:g} s"}
    found = [line[line.index("{") :] for line in done.stdout.splitlines() if '{"way"' in line]
    if done.returncode or not found:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return facts | {"error": (lines or ["said nothing"])[-1][-300:]}
    return json.loads(found[-1]) | facts


def _unset(run: Run, options: argparse.Namespace) -> set[str]:
    return set(options.unset.split(",")) if run.way in OF_OTHERS else set()


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line for each model and number of GPUs; of several equal runs the one with the most samples/s."""
    best: dict[tuple[str, int, str], dict[str, Any]] = {}
    second: dict[tuple[str, int], float] = {}
    for row in rows:
        key = row["model"], row["gpus"], row["way"]
        if "error" not in row and row.get("start") == 2:
            second[key[:2]] = row["first_step_s"]
        # A run that failed counts only where none succeeded.
        if key not in best or row.get("samples_per_s", 0) > best[key].get("samples_per_s", 0):
            first = best.get(key, row)
            best[key] = row | ({"first_step_s": first["first_step_s"]} if "first_step_s" in first else {})
    ways = [way for way in WAYS if any(key[2] == way for key in best)]
    others = [way for way in ways if way != "ring"]
    head = ["model", "GPUs", *(f"{NAMES[way]}, samples/s" for way in ways), *(f"ring / {NAMES[way]}" for way in others)]
    head += ["first step, s", "peak GPU memory, GiB"]
    lines = [head, ["---"] * len(head)]
    for model, gpus in dict.fromkeys((model, gpus) for model, gpus, _ in sorted(best, key=_place)):
        of = {way: best.get((model, gpus, way)) for way in ways}
        ours = of.get("ring") or {}
        again = f" (again {second[model, gpus]:g})" if (model, gpus) in second else ""
        firsts = [_number(of[way], "first_step_s") + (again if way == "ring" else "") for way in ways]
        lines.append(
            [
                *(model, str(gpus)),
                *(_number(of[way], "samples_per_s") for way in ways),
                *(_ratio(ours, of[way]) for way in others),
                " / ".join(firsts),
                " / ".join(_number(of[way], "peak_gib") for way in ways),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _place(key: tuple[str, int, str]) -> tuple[int, int]:
    return list(MODELS).index(key[0]), key[1]


def _number(row: dict[str, Any] | None, name: str) -> str:
    if row is None:
        return ""
    if "error" in row:
        return "failed"
    return "n/a" if row.get(name) is None else f"{row[name]:,}"


def _ratio(ours: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    rates = ours.get("samples_per_s"), (theirs or {}).get("samples_per_s")
    return f"{rates[0] / rates[1]:.2f}" if rates[0] and rates[1] else ""


if __name__ == "__main__":
    sys.exit(main())
