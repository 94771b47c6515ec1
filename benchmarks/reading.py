"""How fast a recording is read, and with how much memory.

    python -m benchmarks.generate run.sqlite --format nsys --steps 500 --kernels 1000 --gpus 4
    python -m benchmarks.reading run.sqlite

Each file is read several times, by a process of its own that has imported its libraries, after a first time that warms
the file cache. Beside the seconds stands the ratio to a plain COUNT over the same tables by Python's sqlite3, which
says less of the machine and of what else runs on it.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

_READ = """
import json, resource, sys, time
import adbc_driver_sqlite.dbapi, pandas, pyarrow.compute
from profiles import readers
start, cpu = time.perf_counter(), time.process_time()
timeline = readers.read(sys.argv[1])
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
rows = sum(len(getattr(timeline, name)) for name in ("kernels", "graphs", "copies", "memsets", "api", "marks"))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"wall_s": wall, "cpu_s": cpu, "peak_mib": peak / 1024, "rows": rows}))
"""


def read(path: Path) -> dict[str, float]:
    """Seconds, MiB and rows of one reading in a fresh process."""
    done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, check=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def count_s(path: Path) -> float | None:
    """Seconds that COUNT takes over all tables; None for what is not SQLite."""
    with path.open("rb") as file:
        if not file.read(16).startswith(b"SQLite format 3"):
            return None
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        start = time.perf_counter()
        for table in tables:
            connection.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    print(
        "| recording | MB | rows | median s | best s | CPU s | peak MiB | x COUNT |\n|---|---|---|---|---|---|---|---|"
    )
    for path in arguments.paths:
        read(path)
        found = [read(path) for _ in range(arguments.times)]
        counts = [seconds for _ in range(arguments.times) if (seconds := count_s(path)) is not None]
        walls = [one["wall_s"] for one in found]
        ratio = f"{statistics.median(walls) / statistics.median(counts):.1f}" if counts else "n/a"
        size, rows = path.stat().st_size / 1e6, found[0]["rows"]
        print(
            f"| {path.name} | {size:.0f} | {rows:,.0f} | {statistics.median(walls):.2f} | {min(walls):.2f} |"
            f" {statistics.median(one['cpu_s'] for one in found):.2f} |"
            f" {max(one['peak_mib'] for one in found):.0f} | {ratio} |"
        )


if __name__ == "__main__":
    main()
