"""Run a rank: `python -m harness.training.worker --cell CELL.json --out DIR [--record [cuda|tensorflow]]`.

Files in DIR, k being the rank:

    rank<k>.jsonl       the record (profiles.runs.rank_records.RankRecord), if the training ended well
    rank<k>.error.json  {"status", "reason"}, if it did not
    rank<k>.progress    one line of JSON with phase, step and of, kept up to date

The first two are written whole or not at all. Exit codes: 0 trained, 1 failed or out of memory, 3 a cell that cannot
run here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import Cell
from profiles.runs.strategies import TENSORFLOW

from ..machine import capture_range, ranks, recorded_ranks
from ..machine.out_of_memory import OUT_OF_MEMORY
from . import combinations, facts, windows
from .strategies import Trainer, Unsupported

OFFSET_BARRIERS = 21


class Progress:
    """Writes `rank<k>.progress`: one line, rewritten in place at most five times a second, so that a step does not
    become slower."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        self._next_ns = 0

    def phase(self, name: str, of: int = 0) -> Callable[[int], None]:
        """Start a phase of `of` steps (0: not counted). Returns a function to call with the number of steps done."""
        self._write(name, 0, of)

        def done(step: int) -> None:
            if time.monotonic_ns() >= self._next_ns or step == of:
                self._write(name, step, of)

        return done

    def _write(self, phase: str, step: int, of: int) -> None:
        line = json.dumps({"phase": phase, "step": step, "of": of}).ljust(79) + "\n"
        os.pwrite(self._file, line.encode(), 0)
        self._next_ns = time.monotonic_ns() + 200_000_000


# Lines of a graph's error that only say where it happened, or that TensorFlow adds to every error.
PLACES = re.compile(r'Detected at node |<stack traces unavailable>|File "|\d+ root error|\[\[|Hint: |\[Op:')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.training.worker", description="Train one cell as one rank."
    )
    parser.add_argument("--cell", type=Path, required=True, help="a Cell as JSON")
    parser.add_argument("--out", type=Path, required=True, help="directory for this rank's files")
    parser.add_argument(
        "--record",
        nargs="?",
        const="cuda",
        choices=("cuda", "tensorflow"),
        help="record the timed steps: open the CUDA capture range, or run TensorFlow's profiler",
    )
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    rank = ranks.rank()
    progress = Progress(options.out / f"rank{rank}.progress")
    progress.phase("start")
    try:
        cell = Cell.from_json(json.loads(options.cell.read_text()))
        on_backend = train if cell.spread.backend == TENSORFLOW else _elsewhere
        record = on_backend(cell, options.out, progress, options.record)
        write_rank(options.out / f"rank{record.rank}.jsonl", record)
        progress.phase("done")
    except Exception as error:
        status, reason = what_became(error)
        traceback.print_exc()
        text = json.dumps({"status": status, "reason": reason})
        write_whole(options.out / f"rank{rank}.error.json", text)
        sys.stderr.flush()
        # Not sys.exit, because Horovod's shutdown waits for ranks that may never come.
        os._exit(3 if status in ("unsupported", "indivisible") else 1)
    return 0


def what_became(error: Exception) -> tuple[str, str]:
    """(status, reason) for an exception: `unsupported`, `oom`, or `failed`."""
    text = f"{type(error).__name__}: {error}".strip()
    reason = first_cause(text)[:500]
    if isinstance(error, ModuleNotFoundError) and error.name in ("tensorflow", "keras", "horovod", "nvtx"):
        return (
            "unsupported",
            f"{error.name} is not installed in {sys.prefix}; `make setup` makes an environment with it",
        )
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):
        return "oom", reason
    return "failed", str(error) if isinstance(error, RingscopeError) else reason


def first_cause(text: str) -> str:
    """The line of an error's text that says what happened. This is the first line that does not only name a place in
    a graph; if memory did not suffice, it is the line that says so."""
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    if lines[0].endswith("Graph execution error:"):
        lines = [line for line in lines[1:] if not PLACES.match(line)] or lines
        return next(filter(OUT_OF_MEMORY.search, lines), lines[0])
    return lines[0]


def train(cell: Cell, out: Path, progress: Progress, record: str | None) -> RankRecord:
    """Train a cell as this rank: set up, warm up, time one window. record: the profiler to run, cuda or tensorflow,
    or None. Raises Unsupported for a cell that cannot run here, RingscopeError if its data or its GPUs are missing."""
    progress.phase("import")
    import tensorflow as tf

    from ringscope import ring
    from ringscope.ring.forms import masks

    from . import autotune, convergence
    from .strategies import trainer as trainer_of

    gpus = len(tf.config.list_physical_devices("GPU"))
    facts.check_seen("tensorflow", gpus)
    combinations.check(cell, gpus=gpus)
    progress.phase("connect")
    ring.init(pin=not (cell.spread.one_process or cell.spread.splits))
    if cell.memory_limit_mb:
        limit_gpus(cell.memory_limit_mb)
    _check_ranks(cell)
    progress.phase("build")
    trainer = trainer_of(cell, "/GPU:0" if gpus else "/CPU:0")
    if gpus and cell.spread.exchange != "parameter server":  # a parameter server keeps the weights in host memory
        facts.check_on_gpu(trainer.model)
    last: dict[str, Any] = {}

    def turn() -> int:
        with masks.unspread():  # traced like ring's own steps, so that all strategies train equal programs
            last["logs"], waited_ns = trainer.turn()
        return waited_ns

    more: dict[str, Any] = {"memory_built_bytes": facts.memory_built_bytes()}
    with convergence.untouched(trainer.model) if cell.until else nullcontext():
        if cell.autotune == "on" and cell.processes > 1:
            more["autotune"] = autotune.settle(turn, progress.phase("autotune"))
        windows.warm_up(turn, steps=cell.warmup, progress=progress.phase("warm-up", cell.warmup))
    trainer.model.reset_metrics()
    synchronise(trainer)
    offset_ns = clock_offset_ns()
    first_gpu = ring.local_rank() * cell.gpus_per_process

    def measured(steps: int, done: Callable[[int], None]) -> windows.Window:
        barrier()  # the ranks' profilers do not take equally long to start
        return windows.measure(turn, steps=steps, synchronise=partial(synchronise, trainer), progress=done)

    with recording(record, out):
        if cell.until:
            steps = cell.max_epochs * trainer.source.steps_per_epoch
            done, judging = progress.phase("train", steps), partial(progress.phase, "judge")
            window, more["convergence"] = convergence.converged(cell, trainer, measured, done, judging)
        else:
            window = measured(cell.steps, progress.phase("train", cell.steps))
    progress.phase("finish")
    with masks.unspread():  # the strategy `split` times each stage alone in it, which traces the stages again
        own = trainer.told(recorded=record is not None)
    return RankRecord(
        rank=ring.rank(),
        size=ring.size(),
        local_rank=ring.local_rank(),
        host=socket.gethostname(),
        device=facts.gpu_uuid(first_gpu) if gpus else None,
        window_start_ns=window.start_ns,
        window_end_ns=window.end_ns,
        samples=trainer.samples_per_step * len(window.step_ns),
        step_ns=window.step_ns,
        input_wait_ns=window.input_wait_ns,
        clock_offset_ns=offset_ns,
        extra=facts.closing(trainer.model, last["logs"]) | own | more,
    )


def _elsewhere(cell: Cell, out: Path, progress: Progress, record: str | None) -> RankRecord:
    """Train a cell on another Keras backend than TensorFlow, without importing TensorFlow."""
    from . import peers

    combinations.check(cell, gpus=None)
    if record:
        raise Unsupported(f"{cell.strategy} is timed and not recorded; record your script: ringscope record -- python")
    return peers.train(cell, out, progress)


def _check_ranks(cell: Cell) -> None:
    from ringscope import ring

    if ring.size() != cell.processes:
        raise Unsupported(f"the cell needs {cell.processes} processes, and the launcher started {ring.size()}")
    if cell.op == "adasum" and ring.size() > 1 and not ring.by_mpi():
        raise Unsupported("Gloo has no Adasum; take --launcher mpirun")


def limit_gpus(memory_limit_mb: int) -> None:
    """Limit the memory of each GPU to `memory_limit_mb` MiB, before TensorFlow takes any. The keeper limits host
    memory."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(
            gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=memory_limit_mb)]
        )


def synchronise(trainer: Trainer) -> None:
    """Wait until the devices have finished all launched work."""
    import tensorflow as tf

    trainer.settle()
    # Not tf.test.experimental.sync_devices: in a cluster it also asks the devices of other tasks, and fails.
    for number in range(len(tf.config.get_visible_devices("GPU"))):
        with tf.device(f"/GPU:{number}"):
            tf.raw_ops.SyncDevice()


def barrier() -> None:
    """Wait until all ranks are here. The exchange runs on the CPU, so that recordings hold no kernel of the barrier."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    with tf.device("/CPU:0"):
        hvd.allreduce(tf.zeros(1), name="barrier").numpy()


def clock_offset_ns() -> int:
    """This host's clock minus rank 0's, in ns, from the times at which both ranks leave the same barriers."""
    from ringscope.ring.exchange import from_all
    from ringscope.ring.internals.frameworks import hvd

    instants = []
    for _ in range(OFFSET_BARRIERS):
        barrier()
        instants.append(time.time_ns())
    everyone = from_all((socket.gethostname(), instants), "clocks")
    return windows.clock_offset_ns([i for _, i in everyone], hvd.rank(), [host for host, _ in everyone])


@contextmanager
def recording(profiler: str | None, out: Path) -> Iterator[None]:
    """Within this context, record the process if a profiler is named, and mark the recording with the rank."""
    from ringscope import ring
    from ringscope.ring import marks

    capture: AbstractContextManager[Any] = nullcontext()
    if os.environ.get(recorded_ranks.RECORDED) == "0":
        profiler = None
    if profiler == "cuda":
        capture = capture_range.opened()
    elif profiler == "tensorflow":
        import tensorflow as tf

        # A directory per rank; otherwise ranks would overwrite each other's files.
        capture = tf.profiler.experimental.Profile(str(out / f"rank{ring.rank()}.xplane"))
    with capture:
        marks.mark_rank(ring.rank(), ring.size())
        yield


if __name__ == "__main__":
    sys.exit(main())
