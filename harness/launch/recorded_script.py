"""Run a Python script and let a profiler record a part of it: some steps, once their time is steady, or some seconds.

python -m harness.launch.recorded_script --steps 20 --delay 30 --duration 10 -- SCRIPT|-m MODULE ...

`ringscope record` puts this before a Python command. A script compiles for seconds or for minutes, so no fixed delay
suits every script: steps.py observes the steps instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from profiles.ground import threads
from profiles.ground.after_import import AfterImport
from profiles.ground.errors import RingscopeError
from profiles.ground.hooked import before
from ringscope.places import garbage, of_keras, of_tensorflow, of_torch, ranges, sampler

from ..machine import capture_range, joined, ranks, recorded_ranks
from . import framework_profiler, script
from .agreed_step import Agreed
from .recorder import Recorder
from .steps import DEEPSPEED, KERAS, OPTIMIZERS, TORCH, Steps, of_execution, watch, watch_deepspeed, watch_optimizers

_ADAPTER = "keras.src.trainers.data_adapters.py_dataset_adapter"
# module -> an attribute that it has once its import is complete
_WHOLE = {**dict.fromkeys(KERAS, "Model"), TORCH: "compile"}
LOOK_S = 0.5  # seconds between looks at the clock
SAY_S = 10.0  # seconds between messages about what the recording waits for


def say_loaders(adapters: ModuleType) -> None:
    """Warn on stderr before a training if the loader workers of all ranks on this host outnumber its cores. If the
    script uses ring, ring prints the warning."""
    said = set[str]()

    def say(adapter: Any, x: Any, *_: Any, **__: Any) -> None:
        on_host = ranks.local_size()
        found = threads.loaders_over_cores(x.workers, on_host, threads.cores_of_ranks(on_host))
        if found and "ringscope.ring" not in sys.modules and found[0] not in said:
            said.add(found[0])
            print(f"ringscope: {found[0]}; {found[1]}", file=sys.stderr, flush=True)

    before(adapters.PyDatasetAdapter, "__init__", say)


def say_executions(keras: ModuleType) -> None:
    """Say on stderr, before a training whose model takes several steps in one execution, that one mark stands for all
    of them. ring marks each step."""
    said = set[int]()

    def say(callbacks: Any, *_: Any, **__: Any) -> None:
        count = of_execution(callbacks)
        if count > 1 and "ringscope.ring" not in sys.modules and count not in said:
            said.add(count)
            text = f"ringscope: each recorded step is an execution of {count} steps (steps_per_execution={count})"
            print(f"{text}; divide its time by {count}", file=sys.stderr, flush=True)

    before(keras.callbacks.CallbackList, "on_train_begin", say)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="harness.launch.recorded_script", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--steps", type=int, help="number of steps to record once they are steady; without it, record by time"
    )
    parser.add_argument(
        "--delay", type=float, required=True, help="seconds after which recording begins if no step was seen"
    )
    parser.add_argument("--duration", type=float, required=True, help="seconds to record if no step was seen")
    own = parser.add_mutually_exclusive_group()
    own.add_argument("--tensorflow", type=Path, help="record by TensorFlow's profiler, into this folder")
    own.add_argument(
        "--framework", type=Path, help="record by the profiler of the framework that trains, into this folder"
    )
    parser.add_argument("--places", type=Path, help="write samples of Python's stack into this folder of recordings")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> None:
    options = _options()
    if os.environ.get(recorded_ranks.RECORDED) == "0":
        script.run(options.script)
        return
    rank = os.environ.get("RINGSCOPE_RANK", "0")
    opened = ExitStack()
    folder = options.tensorflow or options.framework
    kind = framework_profiler.TENSORFLOW if options.tensorflow else None
    if folder:
        ranges.for_framework(kind)
    stepping = [sampler.main_thread()]
    looks = agreed = None
    if options.places:
        if ranks.size() > 1:
            agreed = Agreed(options.places / "first_step")
        else:
            joined.watch(options.places)
        looks = sampler.of_rank(options.places, rank, lambda: stepping[0], throughout=of_tensorflow.pipeline)

    recording = False

    def begins() -> None:
        nonlocal recording
        try:
            if options.places and (count := joined.started(options.places)):
                raise RingscopeError(joined.refusal(count, "record")[0])
            opened.enter_context(framework_profiler.opened(folder, rank, kind) if folder else capture_range.opened())
        # perhaps the script runs a profiler itself; the training goes on without a recording
        except Exception as error:
            print(f"ringscope: rank {rank} is not recorded: {error}", file=sys.stderr, flush=True)
            return
        recording = True
        if looks is not None:
            looks.start()
            opened.callback(looks.stop)
        if options.steps and rank == "0":
            print(f"ringscope: recording from step {recorder.number} on", file=sys.stderr, flush=True)

    def ends() -> None:
        opened.close()
        if agreed is not None:
            agreed.forget()
        if recording and options.steps and rank == "0":
            taken = recorder.number - (recorder.opened_at or 0)  # 0 if seconds were recorded, not steps
            print(f"ringscope: recorded{f' {taken} steps' if taken else ''}", file=sys.stderr, flush=True)

    recorder = Recorder(options.steps or 0, begins, ends, agreed=agreed)
    garbage.watch()
    for name, part in {**of_tensorflow.PARTS, **of_torch.PARTS}.items():
        sys.meta_path.insert(0, AfterImport((name,), part))
    if options.steps:

        def stepped() -> None:
            stepping[0] = threading.get_ident()

        _watch(Steps(recorder, within=folder is not None, stepped=stepped), tells=rank == "0")
    over = threading.Event()
    by_time = (recorder, options.delay, options.duration, over, options.framework is not None)
    waits = threading.Thread(target=_by_time, args=by_time, daemon=True)
    waits.start()
    if rank == "0":
        sys.meta_path.insert(0, AfterImport([_ADAPTER], say_loaders))
        threading.Thread(target=_say, args=(recorder, over), daemon=True).start()
    failed = True
    try:
        script.run(options.script)
        failed = False
    except SystemExit as end:
        failed = end.code not in (None, 0)
        raise
    finally:
        # Not in an atexit handler: TensorFlow cannot be loaded there any more, and a thread that tries to ends the
        # process by SIGSEGV.
        over.set()
        waits.join()
        recorder.finish()
        # `record` itself says which ranks the script has started
        if recorder.holds_nothing and rank == "0" and not (options.places and joined.started(options.places)):
            print(f"ringscope: {recorder.unopened(failed=failed)}", file=sys.stderr, flush=True)


def _watch(steps: Steps, *, tells: bool) -> None:
    """Report the steps of the frameworks that the script imports. tells: True on the rank that prints lines."""

    def watched(keras: ModuleType) -> None:
        if tells:
            say_executions(keras)
        of_keras.lay(keras)
        watch(keras, steps)

    sys.meta_path.insert(0, AfterImport(KERAS, watched))
    sys.meta_path.insert(0, AfterImport([OPTIMIZERS], lambda optimizers: watch_optimizers(optimizers, steps)))
    sys.meta_path.insert(0, AfterImport([DEEPSPEED], lambda deepspeed: watch_deepspeed(deepspeed, steps)))


def _say(recorder: Recorder, over: threading.Event) -> None:
    """Print now and then what the recording waits for, because steps of an eager script may take seconds each."""
    said = ""
    while not recorder.closed and not over.wait(SAY_S):
        now = recorder.waits_for() if recorder.expects_steps else ""
        if now and now != said:
            print(f"ringscope: {now}", file=sys.stderr, flush=True)
        said = now


def _by_time(recorder: Recorder, delay_s: float, duration_s: float, over: threading.Event, inside: bool) -> None:
    """Record by time if no step is seen within `delay_s`, for example in a custom loop of TensorFlow or JAX.

    The delay starts again when Keras or PyTorch is imported, because the import alone may take as long. Once PyTorch
    has an optimizer nothing is recorded by time, because its first step may compile for longer than the delay. inside:
    True if the framework's own profiler records, which waits for the devices of JAX.
    """
    ends_s = time.monotonic() + delay_s
    waits = recorder.steps > 0
    while not over.wait(min(LOOK_S, max(0.0, ends_s - time.monotonic()))):
        if recorder.expects_steps or recorder.awaits_steps and recorder.steps:
            return
        coming = [name for name in _WHOLE if name in sys.modules]
        if waits and coming:
            waits = not any(hasattr(sys.modules[name], _WHOLE[name]) for name in coming)
            ends_s = time.monotonic() + delay_s
        elif inside and framework_profiler.is_early():
            ends_s = max(ends_s, time.monotonic() + LOOK_S)
        elif time.monotonic() >= ends_s:
            break
    if not over.is_set() and recorder.open():
        over.wait(duration_s)
        recorder.finish()


if __name__ == "__main__":
    main()
