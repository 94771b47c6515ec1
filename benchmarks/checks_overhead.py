"""What ring's checks cost: `model.fit` after ring.distribute with them, divided by the same without, by turns.

    python -m benchmarks.checks_overhead                                                       # two ranks on a CPU
    python -m benchmarks.checks_overhead --ranks 2 --model resnet50 --per-rank-batch 256 --input-dtype uint8 \\
        --precision mixed_bfloat16 --step compiled --steps 200 --pairs 15                      # on two GPUs

The checks are those that look and change nothing: the ranks' data and plan before the first step, a common last step
and who left, the weights after step 3 and after the epoch, the seeds, the ranks' metrics, one rank that stops. A window
is a whole `fit` of one epoch, so that all of them are in it. A pair is one window of each; which goes first alternates.
The answer is the median over the pairs, with a 90 % bootstrap interval. It holds if the median is at most 1.01 and the
upper end of the interval at most 1.02. It fails if the whole interval lies above 1.01. Else it is not resolved: use
more pairs or a quieter machine. Below it, what rank 0 spent inside each check, waiting for the other ranks included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness_overhead import ROOT, interval, over_all_ranks, watch
from harness.launch.environment import allowed
from profiles.cell import setting
from profiles.files import write_whole

ROWS = 4  # batches of made-up data, over and over
MOST = 1.01


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checks_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="cnn_cifar")
    parser.add_argument("--per-rank-batch", type=int, default=32)
    parser.add_argument("--input-dtype", default="float32", choices=setting("input_dtype").choices)
    parser.add_argument("--precision", default="float32", choices=("float32", "mixed_bfloat16"))
    parser.add_argument("--step", default="fit", choices=("fit", "compiled"))
    parser.add_argument("--steps", type=int, default=50, help="in a window")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the seconds of all windows and the verdict there")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options)
        return 0
    launcher = ["horovodrun", "-np", str(options.ranks)] if options.ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        command = [*launcher, sys.executable, "-m", "benchmarks.checks_overhead", *sys.argv[1:], "--rank", str(found)]
        with subprocess.Popen(command, env=allowed(os.environ), cwd=ROOT) as ranks:
            watch(ranks, found, options.pairs)
        if ranks.returncode:
            return 2
        return report(json.loads(found.read_text()), options)


def rank(options: argparse.Namespace) -> None:
    """As one rank: fit in turns and write the seconds of each pair (checked, unchecked) to `options.rank`."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    from harness import ring
    from harness.training.models import MODELS, build, loss_for

    ring.init(seed=1)
    switch = Switch()
    spec = MODELS[options.model].spec
    model = build(options.model, input_dtype=options.input_dtype, precision=options.precision)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss_for(spec), metrics=["accuracy"])
    ring.distribute(model, step=options.step)
    random, samples = np.random.default_rng(0), ROWS * options.per_rank_batch * ring.size()
    pixels = random.integers(0, 256, (samples, *spec.input_shape))
    x = pixels.astype(np.uint8) if options.input_dtype == "uint8" else (pixels / 255).astype(np.float32)
    y = random.integers(0, spec.classes, samples)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(options.per_rank_batch, drop_remainder=True)
    steps = options.steps * ring.size()

    def window(*, checked: bool) -> float:
        switch.on = checked
        hvd.allreduce(tf.zeros(1), name="start").numpy()
        start_ns = time.time_ns()
        model.fit(data.prefetch(2), steps_per_epoch=steps, verbose=0)
        return over_all_ranks(start_ns, time.time_ns())

    for checked in (True, False):  # compiling
        window(checked=checked)
    pairs: list[tuple[float, float]] = []
    for pair in range(options.pairs):
        order = (True, False) if pair % 2 == 0 else (False, True)
        seconds = {checked: window(checked=checked) for checked in order}
        pairs.append((seconds[True], seconds[False]))
        if ring.rank() == 0:
            write_whole(options.rank, json.dumps({"pairs": pairs, "inside": switch.inside}))


class Switch:
    """Lies over what checks, and leaves it out while it is off. To be made before ring.distribute."""

    def __init__(self) -> None:
        from harness.ring import agreement, channel, ending, fit, metrics, seeds

        self.on = True
        self.inside: dict[str, tuple[int, float]] = {}  # name -> calls and seconds, while it is on
        nothing: dict[str, str] = {}
        self._over(agreement, "check_weights", None)
        self._over(agreement, "data_facts", nothing)
        self._over(agreement, "layer_facts", nothing)
        self._over(channel.Channel, "begin_step", True)
        self._over(channel.Channel, "meet", [])
        self._over(ending, "checked", None)
        self._over(fit, "_agree_on_plan", None)
        self._over(fit.StopTogether, "on_epoch_end", None)
        self._over(metrics, "check_summable", None)
        self._over(metrics, "sum_states", None)
        self._over(seeds, "set_apart", None)

    def _over(self, owner: Any, name: str, instead: Any) -> None:
        checks: Callable[..., Any] = getattr(owner, name)

        def switched(*given: Any, **named: Any) -> Any:
            if not self.on:
                return instead
            start_s = time.perf_counter()
            try:
                return checks(*given, **named)
            finally:
                calls, seconds = self.inside.get(name, (0, 0.0))
                self.inside[name] = calls + 1, seconds + time.perf_counter() - start_s

        setattr(owner, name, switched)


def report(found: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the verdict. Exit code 0: it holds; 1: it fails; 2: not resolved."""
    seconds = np.array(found["pairs"])
    median, low, high = interval(seconds[:, 0] / seconds[:, 1])
    word = verdict(median, low, high)
    checked, unchecked = (float(np.median(column)) for column in seconds.T)
    print(
        f"{options.model}, {options.ranks} x {options.per_rank_batch}, {options.precision}, {options.step}: a step of"
        f" {unchecked / options.steps * 1e3:.1f} ms; checks {(checked - unchecked) * 1e3:.0f} ms in a fit of"
        f" {options.steps} steps; ratio {median:.4f} (90 % interval {low:.4f} to {high:.4f}, {len(seconds)} pairs):"
        f" {word}"
    )
    windows = len(seconds) + 1
    for name, (calls, inside_s) in sorted(found["inside"].items(), key=lambda item: -item[1][1]):
        print(f"  {name}: {calls / windows:g} calls in a fit, {inside_s / calls * 1e3:.3f} ms each")
    if options.json:
        facts = {"verdict": word, "median": median, "interval": [low, high], "options": vars(options), **found}
        options.json.write_text(json.dumps(facts, default=str) + "\n")
    return {"holds": 0, "fails": 1, "not resolved": 2}[word]


def verdict(median: float, low: float, high: float) -> str:
    if median <= MOST and high <= 2 * MOST - 1:
        return "holds"
    return "fails" if low > MOST else "not resolved"


if __name__ == "__main__":
    sys.exit(main())
