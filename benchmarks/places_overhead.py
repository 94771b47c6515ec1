"""What telling which of the user's lines costs a training: ranges around what Keras calls, and samples of all Python.

    python -m benchmarks.places_overhead [--step-ms 10] [--turns 80] [--seconds 0.25]

Steps of a fixed length are taken in one process, by turns with and without, and the medians of the turns are compared:
of the time a step takes (`time`: on a machine with nothing else to do), and of the processor time of the whole process
(`processor`).
A step is Python and NumPy on the main thread, the worst case: a step that waits for a GPU lets go of Python's lock.
Eight more threads wait, as those of a training do, and the main thread is some 25 frames deep.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ringscope.places import sampler
from ringscope.places.ranges import Place
from ringscope.places.whose import Where

HOOKS = 10  # places a step: five callbacks at its begin and its end
DEPTH = 25


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.places_overhead", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--turns", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--hz", type=int, default=sampler.HZ)
    options = parser.parse_args()
    over = threading.Event()
    for _ in range(8):
        threading.Thread(target=over.wait, daemon=True).start()
    work = _calibrated(options.step_ms / 1e3)
    places = [Place("callback", f"C{k}.on_train_batch_end", Where("train.py", k)) for k in range(HOOKS)]
    told = {
        "step_ms": options.step_ms,
        "hz": options.hz,
        "ranges": _compared(options, work, lambda: _steps(work, places), lambda: _steps(work, [])),
        "range_ns": round(_one_range(places[0])),
        "samples": _sampled(options, work),
    }
    over.set()
    print(json.dumps(told, indent=1))


def _calibrated(step_s: float) -> Callable[[], None]:
    """Work of that length."""
    array = np.random.default_rng(0).random(20_000)

    def some(count: int) -> None:
        for _ in range(count):
            np.sort(array[:2_000])
            sum(k * k for k in range(100))

    def deep(level: int, count: int) -> None:
        some(count) if level == 0 else deep(level - 1, count)

    count = 50
    began = time.perf_counter()
    deep(DEPTH, count)
    count = max(1, round(count * step_s / (time.perf_counter() - began)))
    return lambda: deep(DEPTH, count)


def _steps(work: Callable[[], None], places: list[Place]) -> None:
    work()
    for place in places:
        with place:
            pass


def _one_range(place: Place) -> float:
    began = time.perf_counter_ns()
    for _ in range(20_000):
        with place:
            pass
    return (time.perf_counter_ns() - began) / 20_000


def _turn(seconds: float, step: Callable[[], None]) -> dict[str, float]:
    """Seconds a step, by the clock and of the processor."""
    began, processor, count = time.perf_counter(), time.process_time(), 0
    while (now := time.perf_counter()) < began + seconds:
        step()
        count += 1
    return {"time": (now - began) / count, "processor": (time.process_time() - processor) / count}


def _compared(
    options: argparse.Namespace, work: Callable[[], None], with_it: Callable[[], None], without: Callable[[], None]
) -> dict[str, Any]:
    with_it()
    pairs = [(_turn(options.seconds, with_it), _turn(options.seconds, without)) for _ in range(options.turns)]
    return _ratio(pairs)


def _sampled(options: argparse.Namespace, work: Callable[[], None]) -> dict[str, Any]:
    pairs, looks, spent = [], 0, 0.0
    for _ in range(options.turns):
        with _sampling(options.hz) as sampling:
            since = time.perf_counter()
            first = _turn(options.seconds, work)
            looks, spent = looks + sampling.count, spent + time.perf_counter() - since
        pairs.append((first, _turn(options.seconds, work)))
    return {**_ratio(pairs), "looks_a_second": round(looks / spent, 1)}


@contextmanager
def _sampling(hz: int) -> Iterator[sampler.Sampler]:
    with tempfile.TemporaryDirectory() as folder:
        looks = sampler.of_rank(Path(folder), "0", sampler.main_thread, hz=hz)
        looks.start()
        try:
            yield looks
        finally:
            looks.stop()


def _ratio(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """The median of with / without - 1 over the turns, and its error (1.4826 MAD / sqrt(n))."""
    found = {}
    for name in pairs[0][0]:
        ratios = [first[name] / second[name] - 1 for first, second in pairs]
        middle = statistics.median(ratios)
        spread = 1.4826 * statistics.median(abs(one - middle) for one in ratios)
        found[name] = {"median": round(middle, 5), "error": round(spread / len(ratios) ** 0.5, 5)}
    return found


if __name__ == "__main__":
    main()
