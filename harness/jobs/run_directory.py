"""The run directory (docs/reference/files.md): what is to be done and what is done, in files that are always complete.

runs/<date>-<host>/sweep.json                          the grid
                  /<cell id>/<launch>/cell.json        what the ranks read
                                     /record.json      what became of the launch
                                     /rank<k>.jsonl    a rank's steps; rank<k>.log, .end.json, .error.json, .progress
                                     /launcher.log
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.runs.rank_records import RankRecord, read_rank
from profiles.runs.records import Cell, RunRecord, SweepRecord, read_run, read_sweep
from profiles.scaling.run_directory import ROOT

# Statuses of launches that --resume repeats.
UNFINISHED = ("interrupted", "damaged")
# Records and logs of a launch take some 100 KB. With less space than this the disk would soon be full, and a launch
# would be lost.
LEAST_FREE_BYTES = 200_000_000


class RunDirectory:
    """A sweep's directory, locked by one process at a time if its file system has locks; the lock ends with the
    process, even by kill -9."""

    def __init__(self, path: Path, sweep: SweepRecord) -> None:
        self.path = path
        self.sweep = sweep
        # launches that this process began -> their start on the monotonic clock, in ns
        self._begun: dict[tuple[str, int], int] = {}
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RingscopeError(f"{path}: another ringscope works on it; wait for it, or name another --out") from None
        except OSError:  # a file system without locks, as Lustre and NFS may be
            pass

    def release(self) -> None:
        """Release the lock, so that another process can continue the sweep."""
        self._lock.close()

    @classmethod
    def create(cls, path: Path, sweep: SweepRecord) -> RunDirectory:
        """Begin a new sweep. Raises RingscopeError if the directory holds one already, or another process begins one
        there."""
        check_space(path)
        directory = cls(path, sweep)
        if (path / "sweep.json").exists():
            directory.release()
            verb = "fits" if read_sweep(path).options.get("fits") else "bench"
            again = f"ringscope {verb} --resume --out {path}"
            raise RingscopeError(f"{path}: holds a sweep already; name another --out, or continue it with {again}")
        directory.write_sweep()
        return directory

    @classmethod
    def resume(cls, path: Path, more: list[Cell], *, launches: int | None = None) -> RunDirectory:
        """Continue an earlier sweep; add the cells that it does not have yet, and raise the launches per cell to
        `launches`."""
        sweep = read_sweep(path)
        directory = cls(path, sweep)
        new = [cell for cell in more if cell not in sweep.cells]
        if new or (launches and launches > sweep.launches):
            sweep.cells += new
            sweep.launches = max(sweep.launches, launches or 0)
            directory.write_sweep()
        return directory

    def write_sweep(self) -> None:
        with writing(self.path):
            write_whole(self.path / "sweep.json", json.dumps(self.sweep.to_json(), indent=1))

    def launch_dir(self, cell: Cell, launch: int) -> Path:
        return self.path / cell.id / str(launch)

    def done(self, cell: Cell, launch: int, *, retry_failed: bool = False) -> bool:
        """True if the launch has a final result, which `damaged` is not. A launch recorded as `interrupted` whose
        ranks all have complete records is rewritten as ok and counts."""
        directory = self.launch_dir(cell, launch)
        if not (directory / "record.json").exists():
            return False
        record = read_run(directory).record
        if record.status == "interrupted" and (ranks := _whole_records(directory, cell)):
            # The sweep ended after the last rank wrote its record, but before the launch's status was written.
            self.finish(record, "ok", "", max(rank.window_end_ns for rank in ranks))
            return True
        return record.status == "ok" or (record.status not in UNFINISHED and not retry_failed)

    def begin(self, record: RunRecord) -> Path:
        """Make the launch's directory, with a record that says `interrupted` until the launch is finished. Files of
        an earlier try are moved aside and kept."""
        directory = self.launch_dir(record.cell, record.launch)
        with writing(directory):
            if directory.exists():
                aside = (directory.with_name(f".{directory.name}.earlier-{i}") for i in itertools.count(1))
                directory.rename(next(path for path in aside if not path.exists()))
            check_space(self.path)
            directory.mkdir(parents=True)
            write_whole(directory / "cell.json", json.dumps(record.cell.to_json(), indent=1))
        self._write(record)
        self._begun[record.cell.id, record.launch] = time.monotonic_ns()
        return directory

    def finish(self, record: RunRecord, status: str, reason: str, finished_utc_ns: int | None = None) -> None:
        """Write a launch's status. finished_utc_ns: the time at which the launch ended, in ns; None for now."""
        record.status, record.reason = status, reason
        # the launch's start plus the monotonic clock, since the system clock may have been set meanwhile
        begun = self._begun.get((record.cell.id, record.launch))
        now_ns = time.time_ns() if begun is None else record.started_utc_ns + time.monotonic_ns() - begun
        record.finished_utc_ns = finished_utc_ns or now_ns
        self._write(record)

    def _write(self, record: RunRecord) -> None:
        path = self.launch_dir(record.cell, record.launch) / "record.json"
        with writing(path):
            write_whole(path, json.dumps(record.to_json(), indent=1))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a RingscopeError of one line about `path`; earlier results are kept."""
    try:
        yield
    except OSError as error:
        raise RingscopeError(
            f"{path}: {error.strerror}; mend that and start again (a sweep: with --resume), or name an --out "
            "that can be written"
        ) from error


def _whole_records(directory: Path, cell: Cell) -> list[RankRecord]:
    """The ranks' records; empty unless each rank of the cell has written a complete one."""
    try:
        return [read_rank(directory / f"rank{rank}.jsonl") for rank in range(cell.processes)]
    except (OSError, RingscopeError):
        return []


def check_space(path: Path, need_bytes: int = LEAST_FREE_BYTES) -> None:
    """Raise RingscopeError if the disk of `path`, which need not exist yet, has less than `need_bytes` free."""
    with writing(path):
        free = shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    if free < need_bytes:
        raise RingscopeError(
            f"{path}: {free / 1e6:,.0f} MB free on its disk, {need_bytes / 1e6:,.0f} MB needed; "
            "make room and start again (a sweep: with --resume)"
        )


def new_path() -> Path:
    """`runs/<date>-<host>` for a sweep that begins now."""
    return ROOT / f"{time.strftime('%Y%m%d-%H%M%S')}-{socket.gethostname().partition('.')[0]}"
