"""Time and memory of reading, beside simple peers on the same files in the same run.

    python -m benchmarks.read [--kernels 2000000] [--tenfold] [--ranks 512] [--keep FOLDER]

Each case runs in a process of its own and reports its wall time, CPU time and peak memory. Files are in the page cache,
and the fastest of some runs counts. The peers do less: pandas.read_sql loads the two large tables of an nsys file, a
summary in SQL adds up kernels by name, pandas and json read text as it is. `ringscope timeline` is the whole command,
start-up included. --tenfold also reads a file ten times as large. --ranks reads so many files of 9 020 kernels each,
beside Python's sqlite3, which fetches all rows of the two large tables of each and does nothing with them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

READ = "import profiles; t = profiles.read(path); rows = len(t.kernels) + len(t.copies) + len(t.memsets) + len(t.api)"
PANDAS_SQL = """
import sqlite3, pandas as pd
c = sqlite3.connect(path)
rows = sum(len(pd.read_sql(f'SELECT * FROM CUPTI_ACTIVITY_KIND_{t}', c)) for t in ('KERNEL', 'RUNTIME'))
"""
SUMMARY_SQL = """
import sqlite3
c = sqlite3.connect(path)
q = 'SELECT SUM(end - start), COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY shortName'
rows = sum(n for _, n in c.execute(q))
"""
FETCH_ALL = """
import pathlib, sqlite3
rows = 0
for file in sorted(pathlib.Path(path).iterdir()):
    c = sqlite3.connect(file)
    rows += sum(len(c.execute(f'SELECT * FROM CUPTI_ACTIVITY_KIND_{t}').fetchall()) for t in ('KERNEL', 'RUNTIME'))
    c.close()
"""
PANDAS_CSV = "import pandas as pd; rows = len(pd.read_csv(path, skiprows=[0, 1, 2, 4]))"
PLAIN_JSON = "import json; rows = len(json.load(open(path))['traceEvents'])"

CASES = {
    "nsys": {"read": READ, "pandas.read_sql, two tables": PANDAS_SQL, "SQL summary by name": SUMMARY_SQL},
    "nvprof": {"read": READ},
    "nvprof-csv": {"read": READ, "pandas.read_csv": PANDAS_CSV},
    "kineto": {"read": READ, "json.load": PLAIN_JSON},
}
TIMELINE = "ringscope timeline"
_LARGE_REPEAT = 2  # the first finds the file just written still on its way to the disk

MEASURE = """
import json, resource, sys, time
path = sys.argv[1]
import numpy, pandas, pyarrow  # what every case needs is not its cost
began, cpu = time.perf_counter(), time.process_time()
{body}
took = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{"rows": rows, "wall_s": took, "cpu_s": time.process_time() - cpu, "peak_mb": peak * 1024 / 1e6}}))
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What one case took in time and memory."""

    rows: int
    wall_s: float
    cpu_s: float
    peak_mb: float


def in_own_process(body: str, path: Path) -> Run:
    """`body` with `path` at hand; leaves `rows`."""
    command = [sys.executable, "-c", MEASURE.format(body=body), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def whole_command(path: Path, *more: str) -> Run:
    """`ringscope timeline` on `path`, as a user runs it: its modules are compiled once, whatever the environment says
    of writing that down. Its CPU time is without that of processes that it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(path.parent / "compiled")
    began = time.perf_counter()
    command = [sys.executable, "-m", "harness", "timeline", str(path), "--json", "-", *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return Run(0, time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)


def cases(kind: str, path: Path, repeat: int, *, large: bool = False) -> dict[str, Run]:
    """The fastest run of each case of a format; of a large file without pandas, which would need 24 GB."""
    found = {}
    for name, body in CASES[kind].items():
        if large and "pandas" in name:
            continue
        found[name] = min((in_own_process(body, path) for _ in range(repeat)), key=_wall)
    if kind == "nsys":
        found[TIMELINE] = min((whole_command(path) for _ in range(repeat)), key=_wall)
    return found


def written(kind: str, kernels: int, folder: Path) -> Path:
    """Write a run of about so many kernels over 4 GPUs, unless it exists."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{kernels}.recording"
    if not path.exists():
        print(f"writing {path.name}", file=sys.stderr)
        shape = {"steps": max(4, kernels // 4004), "kernels": 1000, "gpus": 4, "processes": 1}
        given = [f"--{name}={value}" for name, value in shape.items()]
        # A process passes its peak on to those it starts: this one stays small, and imports nothing large.
        command = [sys.executable, "-m", "benchmarks.generate", str(path), f"--format={kind}", *given]
        subprocess.run(command, check=True)
    return path


def of_ranks(ranks: int, folder: Path, repeat: int) -> tuple[Path, dict[str, Run]]:
    """The files of so many ranks, and the fastest run of each case."""
    path = folder / f"ranks-{ranks}"
    if not path.exists():
        print(f"writing {path.name}", file=sys.stderr)
        given = {"steps": 20, "kernels": 450, "gpus": ranks, "processes": ranks}
        words = [f"--{name}={value}" for name, value in given.items()]
        subprocess.run([sys.executable, "-m", "benchmarks.generate", str(path), "--each", *words], check=True)
    found = {
        "sqlite3, all rows of two tables": min((in_own_process(FETCH_ALL, path) for _ in range(repeat)), key=_wall)
    }
    for several in ("1", "2"):
        runs = (whole_command(path, "--processes", several) for _ in range(repeat))
        of_first = "" if several == "1" else " (CPU and peak: of the first process)"
        found[f"{TIMELINE} --processes {several}{of_first}"] = min(runs, key=_wall)
    return path, found


def _wall(run: Run) -> float:
    return run.wall_s


def row(kind: str, path: Path, name: str, run: Run, first: Run, tenth: Run | None) -> list[str]:
    rate = f"{run.rows / run.wall_s / 1e6:.2f}" if run.rows else ""
    size = sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size
    cells = [kind, f"{size / 1e6:.0f}", name, f"{run.rows:,}" if run.rows else ""]
    cells += [f"{run.wall_s:.2f}", f"{run.cpu_s:.2f}", rate, f"{run.peak_mb:.0f}", f"{run.wall_s / first.wall_s:.2f}"]
    return [*cells, f"{run.wall_s / tenth.wall_s:.1f}, CPU {run.cpu_s / tenth.cpu_s:.1f}" if tenth else ""]


def main() -> None:
    """Generate, read, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=2_000_000, help="in all, over 4 GPUs (default: 2 million)")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs counts (default: 3)")
    parser.add_argument("--tenfold", action="store_true", help="an nsys file ten times as large, too")
    parser.add_argument("--ranks", type=int, default=0, help="so many nsys files of 9 020 kernels each, too")
    parser.add_argument("--formats", default=",".join(CASES), help="some of the formats, comma-separated")
    parser.add_argument("--keep", type=Path, help="write the files here, and keep them for the next time")
    given = parser.parse_args()
    table = Table("format", "file MB", "what", "rows", "s", "CPU s", "M rows/s", "peak MB", "to read", "to a tenth")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        tenths: dict[str, Run] = {}
        for kind in filter(None, given.formats.split(",")):
            path = written(kind, given.kernels, folder)
            found = cases(kind, path, given.repeat)
            tenths = found if kind == "nsys" else tenths
            for name, run in found.items():
                table.add_row(*row(kind, path, name, run, found["read"], None))
        if given.tenfold:
            path = written("nsys", given.kernels * 10, folder)
            found = cases("nsys", path, min(given.repeat, _LARGE_REPEAT), large=True)
            for name, run in found.items():
                table.add_row(*row("nsys", path, name, run, found["read"], tenths.get(name)))
        if given.ranks:
            path, found = of_ranks(given.ranks, folder, min(given.repeat, _LARGE_REPEAT))
            first = next(iter(found.values()))
            for name, run in found.items():
                table.add_row(*row("nsys, a file a rank", path, name, run, first, None))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
