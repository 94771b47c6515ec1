"""What ring's checks cost: `model.fit` after ring.distribute with them, divided by the same without, by turns.

    python -m benchmarks.checks_overhead                                                       # two ranks on a CPU
    python -m benchmarks.checks_overhead --ranks 2 --model resnet50 --per-rank-batch 256 --input-dtype uint8 \\
        --precision mixed_bfloat16 --step compiled --steps 200 --pairs 15                      # on two GPUs

The checks are those that look and change nothing: the ranks' data and plan before the first step, a common last step
and who left, the weights after step 3 and after the epoch, the seeds, the ranks' metrics, one rank that stops. A window
is a whole `fit` of one epoch, so that all of them are in it. A pair is one window of each; which goes first alternates,
and both begin from the same weights, so that both train the same: how far their weights end apart is said.
The answer is the median over the pairs, with a 90 % bootstrap interval. It holds if the median is at most 1.01 and the
upper end of the interval at most 1.02. It fails if the whole interval lies above 1.01. Else it is not resolved: use
more pairs or a quieter machine. With `--by cpu` the same is asked of the CPU time of all ranks, which other programs on
the machine disturb less. Below it, what rank 0 spent inside the checks and inside each, waiting for the other ranks
included: that does not drown where the steps of two windows differ by more than the checks cost.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.by_turns import interval, launched, options_of, over_all_ranks, write_verdict
from profiles.ground.files import write_whole

MODULE = "benchmarks.checks_overhead"
ROWS = 4  # batches of made-up data, over and over
MOST = 1.01


def main() -> int:
    parser = options_of(MODULE, __doc__, steps=50, pairs=20)
    parser.add_argument("--by", choices=("wall", "cpu"), default="wall", help="which time the verdict is of")
    options = parser.parse_args()
    if options.rank:
        rank(options)
        return 0
    found = launched(MODULE, options)
    return 2 if found is None else report(found, options)


def rank(options: argparse.Namespace) -> None:
    """As one rank: fit in turns and write the seconds of each pair to `options.rank`: checked, unchecked, and the CPU
    seconds of all ranks likewise."""
    import keras
    import tensorflow as tf

    from harness.training.models import MODELS, build, loss_for
    from ringscope import ring
    from ringscope.ring.exchange import from_all

    ring.init(seed=1)
    switch = Switch()
    spec = MODELS[options.model]
    model = build(options.model, input_dtype=options.input_dtype, precision=options.precision)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss_for(spec), metrics=["accuracy"])
    ring.distribute(model, step=options.step)
    random, samples = np.random.default_rng(0), ROWS * options.per_rank_batch * ring.size()
    pixels = random.integers(0, 256, (samples, *spec.input_shape))
    x = pixels.astype(np.uint8) if options.input_dtype == "uint8" else (pixels / 255).astype(np.float32)
    y = random.integers(0, spec.classes, samples)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(options.per_rank_batch, drop_remainder=True)
    steps = options.steps * ring.size()

    def window(*, checked: bool) -> tuple[float, float]:
        for variable, value in began:
            variable.assign(value)
        switch.on = checked
        from_all(None, "start")
        start_ns, start_cpu_s = time.time_ns(), time.process_time()
        model.fit(data.prefetch(2), steps_per_epoch=steps, verbose=0)
        end_ns, cpu_s = time.time_ns(), time.process_time() - start_cpu_s
        ended[checked] = model.get_weights()
        return over_all_ranks(start_ns, end_ns), sum(from_all(cpu_s, "cpu"))

    began: list[tuple[Any, Any]] = []
    ended: dict[bool, list[Any]] = {}
    for checked in (True, False):  # compiling
        window(checked=checked)
    switch.inside.clear()
    switch.in_all_s = 0.0
    pairs: list[tuple[float, ...]] = []
    apart = 0.0
    began += [(variable, variable.numpy()) for variable in (*model.variables, *model.optimizer.variables)]
    for pair in range(options.pairs):
        order = (True, False) if pair % 2 == 0 else (False, True)
        took = {checked: window(checked=checked) for checked in order}
        pairs.append(tuple(took[checked][kind] for kind in (0, 1) for checked in (True, False)))
        both = zip(ended[True], ended[False], strict=True)
        apart = max(apart, *(float(np.abs(one - other).max(initial=0)) for one, other in both))
        if ring.rank() == 0:
            found = {"pairs": pairs, "inside": switch.inside, "in_all_s": switch.in_all_s, "weights_apart": apart}
            write_whole(options.rank, json.dumps(found))
    switch.on = True  # ring compares weights once more at the end


class Switch:
    """Lies over what checks, and leaves it out while it is off. To be made before ring.distribute."""

    def __init__(self) -> None:
        from ringscope.ring.alike import data as agreement
        from ringscope.ring.alike import weights
        from ringscope.ring.data import seeds
        from ringscope.ring.fit import joint_callbacks, step_counts
        from ringscope.ring.global_batch import metrics
        from ringscope.ring.ranks import channel, stopping

        self.on = True
        self.inside: dict[str, tuple[int, float]] = {}  # name -> calls and seconds, while it is on
        self.in_all_s = 0.0  # in any of them, those that call each other counted once
        self._depth = 0
        nothing: dict[str, str] = {}
        self._over(weights, "check_weights", None)
        self._over(weights, "weights_now", None)
        self._over(agreement, "data_facts", nothing)
        self._over(agreement, "layer_facts", nothing)
        self._over(channel.Channel, "begin_step", True)
        self._over(channel.Channel, "meet", [])
        self._over(step_counts, "agree", None)
        self._over(stopping, "everybodys", lambda channel, what, own: [own])
        self._over(joint_callbacks.StopTogether, "on_epoch_end", None)
        self._over(metrics, "check_summable", None)
        self._over(metrics, "sum_states", None)
        self._over(seeds, "set_apart", None)

    def _over(self, owner: Any, name: str, instead: Any) -> None:
        checks: Callable[..., Any] = getattr(owner, name)

        def switched(*given: Any, **named: Any) -> Any:
            if not self.on:
                return instead(*given) if callable(instead) else instead
            start_s = time.perf_counter()
            self._depth += 1
            try:
                return checks(*given, **named)
            finally:
                self._depth -= 1
                took_s = time.perf_counter() - start_s
                calls, seconds = self.inside.get(name, (0, 0.0))
                self.inside[name] = calls + 1, seconds + took_s
                self.in_all_s += 0.0 if self._depth else took_s

        setattr(owner, name, switched)


def report(found: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the verdict; its exit code."""
    took = np.array(found["pairs"])
    said = []
    for kind, (checked, unchecked) in {"wall": took.T[:2], "cpu": took.T[2:]}.items():
        ratio = interval(checked / unchecked)
        step_ms = float(np.median(unchecked)) / options.steps * 1e3
        said.append(f"{kind} {ratio[0]:.4f} (90 % interval {ratio[1]:.4f} to {ratio[2]:.4f}; a step {step_ms:.1f} ms)")
        if kind == options.by:
            asked, word = ratio, verdict(*ratio)
    print(
        f"{options.model}, {options.ranks} x {options.per_rank_batch}, {options.precision}, {options.step}: a fit of"
        f" {options.steps} steps checked / unchecked, {len(took)} pairs: {', '.join(said)}; by {options.by} {word};"
        f" weights apart by {found['weights_apart']:.1e}"
    )
    share = found["in_all_s"] / took.sum(axis=0)[0]
    print(f"rank 0 was inside the checks {found['in_all_s'] / len(took) * 1e3:.1f} ms a fit, {share:.2%} of its time")
    for name, (calls, inside_s) in sorted(found["inside"].items(), key=lambda item: -item[1][1]):
        print(f"  {name}: {calls / len(took):g} calls in a fit, {inside_s / calls * 1e3:.3f} ms each")
    return write_verdict(found, options, word, *asked)


def verdict(median: float, low: float, high: float) -> str:
    if median <= MOST and high <= 2 * MOST - 1:
        return "holds"
    return "fails" if low > MOST else "not resolved"


if __name__ == "__main__":
    sys.exit(main())
