"""How long a group of small gradients takes to be exchanged: on the ranks' CPUs, so what Horovod itself takes.

    horovodrun -np 2 python -m benchmarks.exchange_latency
    horovodrun -np 2 python -m benchmarks.exchange_latency --pauses-ms 0,5 --calls 200

Six gradients of 64 numbers in one group, --pauses-ms after the last one, as of a step that computes so long: the
microseconds of a call, the mean over --calls. Rank 0 prints one line of JSON for each pause. What is measured is an
edit of scripts/horovod_edits.py; Horovod 0.28.1 without it, in the same environment, is its peer.
"""

from __future__ import annotations

import argparse
import json
import time

import horovod.tensorflow as hvd
import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pauses-ms", default="0,0.5,2", help="default: %(default)s")
    parser.add_argument("--calls", type=int, default=500)
    options = parser.parse_args()
    hvd.init()
    gradients = [tf.Variable(tf.ones(64)) for _ in range(6)]

    @tf.function  # type: ignore[untyped-decorator]
    def exchange() -> list[tf.Tensor]:
        return hvd.grouped_allreduce([each.value() for each in gradients], name="gradients")  # type: ignore[no-any-return]

    for _ in range(50):
        exchange()
    for pause_ms in map(float, options.pauses_ms.split(",")):
        total_s = 0.0
        for _ in range(options.calls):
            over_s = time.perf_counter() + pause_ms / 1e3
            while time.perf_counter() < over_s:
                pass
            began_s = time.perf_counter()
            exchange()[0].numpy()
            total_s += time.perf_counter() - began_s
        if hvd.rank() == 0:
            measured = {"ranks": hvd.size(), "pause_ms": pause_ms, "us": round(total_s / options.calls * 1e6, 1)}
            print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
