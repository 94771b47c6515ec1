"""A rank that trains nothing: real processes for the tests of launching, faults and resuming, without TensorFlow.

`python stand_in.py MODE --cell CELL.json --out DIR`. The fault of a MODE is rank 1's, or the only rank's. Of several,
separated by commas, each is one launch's.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from harness.training import facts
from harness.training.worker import Progress, what_became
from profiles.ground.files import write_whole
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import Cell

STEP_S = 0.01
PATIENCE_S = 240
UNEXPLAINED = {"unexplained": "crash", "explaining": "hung"}
SAMPLE_BYTES = 1 << 20  # of a batch, in modes `allocates` and `strained`
STRAINED = 200  # from this batch on `strained` fails, without a word of memory


def main() -> None:
    mode, out = sys.argv[1], Path(sys.argv[5])
    if "," in mode:
        mode = mode.split(",")[int(out.name)]
    cell = Cell.from_json(json.loads(Path(sys.argv[3]).read_text()))
    rank, size = int(os.environ["RINGSCOPE_RANK"]), int(os.environ["RINGSCOPE_SIZE"])
    progress = Progress(out / f"rank{rank}.progress")
    progress.phase("start")
    if mode in UNEXPLAINED:  # what exchanges nothing fails
        mode = UNEXPLAINED[mode] if cell.strategy == "independent" else "ok"
    held = b"1" * (cell.per_rank_batch * SAMPLE_BYTES) if mode in ("allocates", "strained") else b""
    if mode == "strained" and cell.per_rank_batch >= STRAINED:
        raise RuntimeError("Failed to call DoRnnBackward")
    mode = "ok" if held else mode
    faulty = rank == size - 1
    if mode != "ok":  # ranks that train together begin together
        await_begun([out / f"rank{other}.progress" for other in range(size)], faulty)
    done = progress.phase("train", cell.steps)
    start_ns = time.time_ns()
    for step in range(cell.steps):
        time.sleep(STEP_S)
        done(step + 1)
        if faulty and step == cell.steps // 2:
            fault(mode, out, rank)
        if not faulty and mode != "ok" and step == cell.steps - 1:
            time.sleep(60)  # as in an all-reduce whose peer has gone
    await_leave(out)
    end_ns = time.time_ns()
    shares = [(end_ns - start_ns) // cell.steps] * cell.steps
    record = RankRecord(
        rank=rank,
        size=size,
        local_rank=rank,
        host=socket.gethostname(),
        device=os.environ.get("RINGSCOPE_TEST_DEVICE"),
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        samples=cell.per_rank_batch * cell.steps,
        step_ns=shares,
        input_wait_ns=[0] * cell.steps,
        extra={"host_memory_peak_bytes": facts.host_memory_peak_bytes()} if held else {},
    )
    write_rank(out / f"rank{rank}.jsonl", record)


def await_begun(progress: list[Path], faulty: bool) -> None:
    """Not for ever where there are several hosts, which may have disks of their own; who fails there does not wait."""
    sizes = (os.environ.get(name) for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE"))
    one_host = str(len(progress)) in sizes
    until = time.monotonic() + (PATIENCE_S if one_host else 0 if faulty else 60)
    while not all(path.exists() for path in progress) and time.monotonic() < until:
        time.sleep(STEP_S)


def await_leave(out: Path) -> None:
    """Launches of a sweep end up to the number in the file that RINGSCOPE_TEST_HOLD names, others once it has gone."""
    hold = Path(os.environ.get("RINGSCOPE_TEST_HOLD", os.devnull))
    while hold.is_file():
        records = [json.loads(path.read_text()) for path in out.parents[1].glob("*/[0-9]/record.json")]
        if sum(record["status"] != "interrupted" for record in records) < int(hold.read_text()):
            return
        time.sleep(STEP_S)


def fault(mode: str, out: Path, rank: int) -> None:
    if mode == "crash":
        raise ValueError("the loss is not a number")
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "segfault":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)
    if mode == "hung":
        time.sleep(600)
    if mode == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if mode == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
        try:
            bytearray(2_000_000_000)
        except MemoryError as error:
            status, reason = what_became(error)
            write_whole(out / f"rank{rank}.error.json", json.dumps({"status": status, "reason": reason}))
            os._exit(1)
    if mode == "kernel":
        Path(os.environ["RINGSCOPE_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))
        kept = []
        while True:
            kept.append(b"1" * 10_000_000)
    if mode == "daemon":
        # What a launcher or profiler may do: a session of its own, its parent gone.
        subprocess.Popen(["setsid", "--fork", "sleep", "600"])


if __name__ == "__main__":
    main()
