"""See the package."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import profiles
from harness.machine import nvml
from profiles.metrics import host_places
from profiles.model import measures_json
from profiles.model.measures import Measures
from profiles.model.places import Place
from profiles.verdicts import places

SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = 240
# What the first finding may be called; without a line in the script only that is asked.
EXPECTED = {
    "control": (),
    "reads_weights": ("slow-callback",),
    "sleeps": ("slow-callback",),
    "checkpoints": ("checkpoint-in-the-loop", "slow-callback"),
    "eager": ("eager-step",),
    "one_worker": ("slow-batches",),
    "generator": ("slow-batches",),
    "py_function": ("python-function-in-the-graph", "slow-batches"),
    "slow_rank": ("slow-callback",),
    "shared_gpu": ("slow-gpu", "straggler", "launched-work-waits", "gradients-wait-for-ranks"),
    "tiny_batches": ("tiny-batch", "launch-bound", "python-in-the-loop", "short-kernels", "model-too-small"),
    "big_dense": ("all-reduce-exposed", "collectives-exposed", "model-too-small"),
    "prints": ("slow-callback",),
    "numpy_metric": ("python-function-in-the-graph",),
    "lock": ("lock-between-threads",),
    "garbage": ("garbage-collection",),
    "torch_fetches": ("slow-line",),
    "torch_augments": ("slow-line", "slow-batches"),
    "torch_waits": ("lock-between-threads",),
}
FINE_BELOW = 0.05  # of the control's findings
GPU_ALONE = ("shared_gpu", "tiny_batches", "big_dense", "torch_fetches")  # what nothing on a CPU tells


@dataclass
class Told:
    """A script's first finding, and the expected one."""

    script: str
    expected: str
    found: str = ""
    right: bool = False
    seconds: float = 0.0
    findings: list[dict[str, object]] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.slow_scripts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=EXPECTED, metavar="NAME")
    parser.add_argument("--np", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    gpus = len(nvml.visible_gpus())
    told = []
    for name in options.only or EXPECTED:
        if not _runs_here(name, gpus):
            print(f"{name}: not here", flush=True)
            continue
        told.append(_one(name, options.np, options.out, gpus))
        judged = "right" if told[-1].right else "WRONG"
        print(f"{judged}  {name}: {told[-1].found}  ({told[-1].seconds:.0f} s)", flush=True)
        (options.out / "table.md").write_text(table(told))
        (options.out / "results.json").write_text(json.dumps([asdict(one) for one in told], indent=1) + "\n")
    print(table(told))


def _runs_here(name: str, gpus: int) -> bool:
    if name.startswith("torch_") and (gpus or name not in GPU_ALONE):
        return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    return gpus > 0 or name not in GPU_ALONE


def reasons(name: str) -> list[int]:
    """The lines of a script that are the reason."""
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# the reason")]


def _one(name: str, ranks: int, out: Path, gpus: int) -> Told:
    lines = reasons(name)
    expected = ", ".join(EXPECTED[name]) or "nothing above 5 %"
    told = Told(name, expected + (f" at {name}.py:{'|'.join(map(str, lines))}" if lines else ""))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"slow-{name}-") as scratch, _beside(name, gpus):
        folder = Path(scratch, "run")
        log = out / f"{name}.log"
        _record(name, ranks, folder, log, gpus)
        recorded = folder / "command" / "0"
        try:
            if gpus:
                _judge_gpu(told, lines, recorded, out)
            else:
                _judge_cpu(told, lines, recorded, out)
        except (profiles.RingscopeError, OSError, StopIteration) as error:
            told.found = f"nothing: {error}; see {log.name}"
    if told.right:
        log.unlink(missing_ok=True)
    else:
        log.write_text(log.read_text()[-6000:])
    told.seconds = time.monotonic() - began
    return told


@contextmanager
def _beside(name: str, gpus: int) -> Iterator[None]:
    """The other program, where a script has one."""
    if name != "shared_gpu":
        yield
        return
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": str(max(gpus - 1, 0)), "TF_CPP_MIN_LOG_LEVEL": "2"}
    other = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "other_program.py")], env=environ, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    other.stdout.readline()
    try:
        yield
    finally:
        other.kill()
        other.wait()


def _record(name: str, ranks: int, folder: Path, log: Path, gpus: int) -> None:
    torch = name.startswith("torch_")
    command = [sys.executable, "-m", "harness", "record", "-np", str(ranks), "--out", str(folder)]
    command += ["--launcher", "single"] if ranks == 1 else []  # needs no Horovod
    command += ["--delay", "12", "--duration", "4", "--steps", "20", "--then", "stop"] if torch else []
    command += ["--", sys.executable, f"{name}.py"]
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    if not gpus:
        environ["RINGSCOPE_SMALL"] = "1"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=SCRIPTS, env=environ, stdout=output, stderr=subprocess.STDOUT)
        until = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.5)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _judge_gpu(told: Told, lines: list[int], recorded: Path, out: Path) -> None:
    paths = sorted(recorded.glob("rank*.sqlite"))
    measures = profiles.measure(paths)
    _keep(measures, out / f"{told.script}.json.gz")
    for one in measures.findings[:4]:
        where = f"{one.evidence['file']}:{one.evidence['line']}" if "file" in one.evidence else ""
        told.findings.append(
            {"code": one.code, "where": where, "gpu": one.gpu, "at_most_gain": one.at_most_gain, "text": one.text}
        )
    if told.script == "control":
        shares = [1 - 1 / (1 + one.at_most_gain) for one in measures.findings if one.at_most_gain is not None]
        worst = max(shares, default=0.0)
        told.found, told.right = f"{len(measures.findings)} findings, the largest {worst:.1%}", worst <= FINE_BELOW
        return
    first = measures.findings[0] if measures.findings else None
    if first is None:
        told.found = "no finding"
        return
    where = (first.evidence.get("file"), first.evidence.get("line"))
    told.found = f"{first.code}" + (f" at {where[0]}:{where[1]}" if where[0] else "")
    told.right = first.code in EXPECTED[told.script] and _is_there(told.script, lines, *where)


def _judge_cpu(told: Told, lines: list[int], recorded: Path, out: Path) -> None:
    """The place in which the host was longest, over the ranks."""
    best: tuple[int, Place, int] | None = None
    for path in sorted([*recorded.glob("rank*.xplane.pb"), *recorded.glob("rank*.pt.trace.json")]):
        if (found := host_places.measure(profiles.read(path))) is None:
            continue
        rows = [row for row in found.places.rows if row.kind in places.CODES and row.kind != "call"]
        for row in rows[:3]:
            share = round(row.total_ns / found.span_ns, 3)
            told.findings.append({"recording": path.name, "kind": row.kind, "where": row.at, "share": share})
        if rows and (best is None or rows[0].total_ns > best[0]):
            best = rows[0].total_ns, rows[0], found.span_ns
    if told.script == "control":
        share = best[0] / best[2] if best else 0.0
        told.found, told.right = f"the largest place has {share:.1%}", share <= FINE_BELOW
        return
    if best is None:
        told.found = "no place"
        return
    _, row, span = best
    code = places.code_of(row)
    told.found = f"{code} at {row.at}, {row.total_ns / span:.0%} of the time"
    told.right = code in EXPECTED[told.script] and _is_there(told.script, lines, row.file, row.line)


def _is_there(script: str, lines: list[int], file: object, line: object) -> bool:
    return not lines or (Path(str(file)).name == f"{script}.py" and line in lines)


def _keep(measures: Measures, path: Path) -> None:
    with gzip.open(path, "wt") as file:
        file.write(measures_json.dumps(measures, per_step=False))


def table(told: list[Told]) -> str:
    rows = [f"| {one.script} | {one.expected} | {one.found} | {'yes' if one.right else 'no'} |" for one in told]
    right = sum(one.right for one in told)
    head = ["| script | expected | first | right |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "", f"{right} of {len(told)} right"]) + "\n"


if __name__ == "__main__":
    main()
