"""`ringscope timeline` beside `nsys stats` and `nsys analyze`, on one recording in the same run: times and totals.

    python -m benchmarks.nsys RECORDING.sqlite [--times 120]

Needs `nsys` on the PATH. --times repeats the recording's events so many times, one after the other, with their names:
a recording of a few steps measures little but the start of each program. `nsys stats` makes its kernel, memory and
execution summaries, `nsys analyze` all its rules. Kernels, copies and memsets must agree in number and, to the
nanosecond, in time; if not, the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPORTS = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_kern_exec_sum")


def multiply(source: Path, target: Path, times: int) -> None:
    """Write `target`: the events of the nsys export `source` so many times, one after the other.

    Marks without an end are written once: they belong to the capture, not to a step.
    """
    shutil.copy(source, target)
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        columns = {
            table: [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        }
        tables = [table for table in columns if {"start", "end"} <= set(columns[table])]
        spans = [
            connection.execute(f'SELECT min(start), max("end") FROM "{table}" WHERE "end" NOT NULL').fetchone()
            for table in tables
        ]
        span_ns = max(end for _, end in spans if end) - min(start for start, _ in spans if start) + 1000
        calls = connection.execute("SELECT max(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
        connection.execute("BEGIN")
        connection.execute("CREATE TEMP TABLE again (k INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO again VALUES (?)", [(k,) for k in range(1, times)])
        for table in tables:
            values = ", ".join(_shifted(name, span_ns, calls) for name in columns[table])
            once = f'SELECT * FROM "{table}" WHERE "end" NOT NULL'
            connection.execute(f'INSERT INTO "{table}" SELECT {values} FROM again JOIN ({once}) e ORDER BY k')
        connection.execute("COMMIT")


def _shifted(column: str, span_ns: int, calls: int) -> str:
    """A column's value in the k-th repetition, in SQL."""
    value = f'e."{column}"'
    if column in ("start", "end"):
        return f"{value} + k * {span_ns}"
    if column == "correlationId":
        return f"{value} + k * {calls}"
    return value


def run(*command: str) -> tuple[float, str]:
    """The seconds it took, and its output."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr or done.stdout}")
    return time.perf_counter() - began, done.stdout


def nsys_totals(kernels: str, memory: str) -> dict[str, int]:
    """Totals from the CSV of the kernel summary and the memory summary."""
    kernel_rows, memory_rows = (
        list(csv.DictReader(io.StringIO(text[text.index("Time (%)") :]))) for text in (kernels, memory)
    )
    return {
        "kernels": sum(int(row["Instances"]) for row in kernel_rows),
        "their time, ns": sum(int(row["Total Time (ns)"]) for row in kernel_rows),
        "copies and memsets": sum(int(row["Count"]) for row in memory_rows),
        "their time on the GPU, ns": sum(int(row["Total Time (ns)"]) for row in memory_rows),
    }


def our_totals(path: Path) -> dict[str, int]:
    """The same totals of the recording as ringscope reads it."""
    from profiles import readers

    timeline = readers.read(path)
    kernels, copies, memsets = (
        (len(table), int((table["end_ns"] - table["start_ns"]).sum()))
        for table in (timeline.kernels, timeline.copies, timeline.memsets)
    )
    return {
        "kernels": kernels[0],
        "their time, ns": kernels[1],
        "copies and memsets": copies[0] + memsets[0],
        "their time on the GPU, ns": copies[1] + memsets[1],
    }


def compare(path: Path, repeat: int) -> bool:
    """Print both tables. Returns whether all totals agree."""
    ours = min(run(sys.executable, "-m", "harness", "timeline", str(path), "--json", "-")[0] for _ in range(repeat))
    took = {report: run("nsys", "stats", "--report", report, "--format", "csv", str(path)) for report in REPORTS}
    analyze_s, _ = run("nsys", "analyze", str(path))
    theirs = sum(seconds for seconds, _ in took.values()) + analyze_s
    times = Table("what", "s", "to ours", title=f"{path.name}, {path.stat().st_size / 1e6:.0f} MB")
    for name, seconds in [
        ("ringscope timeline", ours),
        *((f"nsys stats {report}", seconds) for report, (seconds, _) in took.items()),
        ("nsys analyze", analyze_s),
        ("all of nsys", theirs),
    ]:
        times.add_row(name, f"{seconds:.2f}", f"{seconds / ours:.1f}")
    totals = Table("total", "ringscope", "nsys")
    told, mine = nsys_totals(took[REPORTS[0]][1], took[REPORTS[1]][1]), our_totals(path)
    for name, value in mine.items():
        totals.add_row(name, f"{value:,}", f"{told[name]:,}")
    Console(width=100).print(times, totals)
    return told == mine


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recording", type=Path, help="an nsys export, .sqlite")
    parser.add_argument("--times", type=int, default=1, help="lay its events so many times after another (default: 1)")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs of ours counts (default: 3)")
    given = parser.parse_args()
    if not shutil.which("nsys"):
        raise SystemExit("no nsys on the PATH: install Nsight Systems, or put its folder on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / given.recording.name
        multiply(given.recording, path, given.times)
        raise SystemExit(0 if compare(path, given.repeat) else "the totals differ")


if __name__ == "__main__":
    main()
