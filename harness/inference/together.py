"""`python -m harness.inference.together PLAN.json NUMBER DIR`: one of several processes that compute predictions at the
same time.

PLAN: {"model", "batch": samples per device, "devices": of this process, "kind": CPU or GPU, "threads", "seconds"}. When
the process is ready it writes `ready<NUMBER>` into DIR and waits for the file `go`, which holds the time to start. From
then on it computes for `seconds`, by the clock that all processes of a host share (CLOCK_MONOTONIC).
`calls<NUMBER>.json` lists begin and end of each call in ns. With several devices it cuts each batch between them and
joins the results: one synchronous model.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from profiles.ground.files import write_whole

from ..training.strategies import devices
from . import models

WARM_UP = 3
LOOK_S = 0.005


def answering(plan: dict[str, Any]) -> Callable[[], Any]:
    """A function for one call: copies the samples from host memory to all devices and the results back."""
    import tensorflow as tf

    if plan["kind"] == "CPU":
        tf.config.threading.set_intra_op_parallelism_threads(plan["threads"])
    models.gpus()
    places = devices.take(plan["kind"], plan["devices"])
    copies = [models.load(plan["model"], place) for place in places]
    x = models.samples(copies[0].input_shape, copies[0].input_dtype, plan["batch"] * len(places))

    @tf.function(autograph=False)
    def joined(x: Any) -> Any:
        parts = tf.split(x, len(places))
        return tf.concat([copy.answer(part) for copy, part in zip(copies, parts, strict=True)], axis=0)

    whole = joined if len(places) > 1 else copies[0].answer

    def call() -> Any:
        return np.asarray(whole(x))

    return call


def main(plan_path: str, number: str, folder: str) -> int:
    plan, out = json.loads(Path(plan_path).read_text()), Path(folder)
    call = answering(plan)
    for _ in range(WARM_UP):
        call()
    write_whole(out / f"ready{number}", "")
    while not (out / "go").exists():
        time.sleep(LOOK_S)
    begin_ns = int((out / "go").read_text())
    until_ns = begin_ns + round(plan["seconds"] * 1e9)
    time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
    calls: list[tuple[int, int]] = []
    while (now := time.monotonic_ns()) < until_ns:
        call()
        calls.append((now, time.monotonic_ns()))
    write_whole(out / f"calls{number}.json", json.dumps(calls))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
