"""Runs a script under TensorFlow's profiler.

    python -m harness.launch.tensorflow_profiler --out DIR --delay S --duration S -- SCRIPT|-m MODULE ...

`ringscope record` uses it for a user's command where there is neither nsys nor nvprof.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import threading
from pathlib import Path

from ..machine import sample


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="harness.launch.tensorflow_profiler", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="where rank<k>.xplane goes")
    parser.add_argument("--delay", type=float, required=True, help="seconds from the start")
    parser.add_argument("--duration", type=float, required=True, help="seconds recorded")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    script = options.script[1:] if options.script[:1] == ["--"] else options.script
    # A directory per rank, else the ranks write over each other.
    folder = options.out / f"rank{os.environ.get('RINGSCOPE_RANK', '0')}.xplane"
    stop = threading.Event()
    recording = threading.Thread(target=record, args=(folder, options.delay, options.duration, stop), daemon=True)
    if os.environ.get(sample.RECORDED) != "0":
        recording.start()

    try:
        if script[0] == "-m":  # modules are looked for where the command was given, as Python does
            sys.argv = script[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(script[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = script
            sys.path[0] = str(Path(script[0]).resolve().parent)
            runpy.run_path(script[0], run_name="__main__")
    finally:
        # Not at exit: TensorFlow cannot be loaded any more then, and a thread that tries ends the process by SIGSEGV.
        stop.set()
        if recording.is_alive():
            recording.join()


def record(folder: Path, delay_s: float, duration_s: float, stop: threading.Event) -> None:
    """Profile from `delay_s` on for `duration_s`, or until told to stop."""
    if stop.wait(delay_s):
        return
    import tensorflow as tf

    if stop.is_set():
        return
    tf.profiler.experimental.start(str(folder))
    stop.wait(duration_s)
    tf.profiler.experimental.stop()


if __name__ == "__main__":
    main()
