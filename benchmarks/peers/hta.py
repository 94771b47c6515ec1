"""HolisticTraceAnalysis beside ringscope on one generated Kineto trace whose answers are known by construction.

    python -m benchmarks.peers.hta                       installs HTA in a new environment
    python -m benchmarks.peers.hta --python ENV/bin/python

Prints the error of each number against the answer, and the time and memory of each tool in a process of its own. HTA
runs as it comes and with HTA_DISABLE_NS_ROUNDING=1: by default it rounds timestamps to whole microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from ..training import Shape, answers
from ..write_text import write_kineto

# HTA's newest release on PyPI when this was written does not import with pandas 3.
REQUIRED = ("HolisticTraceAnalysis==0.5.0", "pandas<3", "numpy<2.3")

# Each prints one JSON object of ns and shares. ru_maxrss is in KiB on Linux.
OURS = """
import json, resource, sys, time
began = time.perf_counter()
import profiles
(gpu,) = profiles.measure(profiles.read(sys.argv[1]), window="capture").gpus
idle = sum(ns or 0 for name, ns in gpu.ledger_ns.items() if name.startswith("idle"))
print(json.dumps({"compute": gpu.busy_ns["compute"], "idle": idle, "hidden": gpu.collectives.overlap,
    "exposed_collective": gpu.ledger_ns["collective"], "exposed_h2d": gpu.ledger_ns["h2d"],
    "feed": gpu.ledger_ns["idle_feed"], "s": time.perf_counter() - began,
    "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
HTA = """
import json, resource, sys, time
began = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
times = trace.get_temporal_breakdown(visualize=False).iloc[0]
overlap = trace.get_comm_comp_overlap(visualize=False).iloc[0]
print(json.dumps({"compute": float(times["compute_time(us)"]) * 1e3, "idle": float(times["idle_time(us)"]) * 1e3,
    "hidden": float(overlap["comp_comm_overlap_pctg"]) / 100, "s": time.perf_counter() - began,
    "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def truth(shape: Shape) -> dict[str, float]:
    """The answers by construction, in ns and shares. None of it is measured."""
    known = answers(shape, 0)
    idle = known.ledger_ns["idle_feed"] + known.ledger_ns["idle_turnaround"]
    return {
        "compute": known.busy_ns["compute"],
        "idle": idle,
        "hidden": 1 - known.ledger_ns["collective"] / known.busy_ns["collective"],
        "exposed_collective": known.ledger_ns["collective"],
        "exposed_h2d": known.ledger_ns["h2d"],
        "feed": known.ledger_ns["idle_feed"],
    }


def environment(folder: Path) -> Path:
    """The interpreter of a new environment with HTA in it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIRED], check=True)
    return python


def run(python: Path | str, code: str, *arguments: Path, **variables: str) -> dict[str, float]:
    """The JSON object that the code prints last."""
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(expected: dict[str, float], found: dict[str, dict[str, float]]) -> str:
    """One line per number, one column per tool: the error in percent of the answer, `-` if it has no such number."""
    lines = [f"{'':>20} {'answer':>16} " + " ".join(f"{name:>16}" for name in found)]
    for number, answer in expected.items():
        cells = [f"{_error(one[number], answer):>16}" if number in one else f"{'-':>16}" for one in found.values()]
        shown = f"{answer:.4f}" if number == "hidden" else f"{answer / 1e6:.3f} ms"
        lines.append(f"{number:>20} {shown:>16} " + " ".join(cells))
    ours = next(iter(found.values()))
    for what, unit in (("s", "s"), ("mib", "MiB")):
        cells = [f"{one[what]:.1f} {unit}, {one[what] / ours[what]:.1f} x" for one in found.values()]
        lines.append(f"{'':>20} {'':>16} " + " ".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def _error(found: float, answer: float) -> str:
    return "exact" if abs(found - answer) <= 1e-12 * abs(answer) else f"{100 * (found / answer - 1):+.4f} %"


def main() -> None:
    """Generate, run each, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, help="an interpreter that can import hta; left out, one is made")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kernels", type=int, default=1000, help="a step")
    given = parser.parse_args()
    shape = Shape(steps=given.steps, kernels=given.kernels, gpus=1, processes=1)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        write_kineto(shape, trace)
        python = given.python or environment(Path(folder) / "environment")
        found = {
            "ringscope": run(sys.executable, OURS, trace),
            "HTA": run(python, HTA, trace, Path(folder)),
            "HTA unrounded": run(python, HTA, trace, Path(folder), HTA_DISABLE_NS_ROUNDING="1"),
        }
    print(f"{given.steps} steps of {given.kernels} kernels, one GPU, one Kineto trace\n")
    print(table(truth(shape), found))


if __name__ == "__main__":
    main()
