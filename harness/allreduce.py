"""What each rank executes to measure the all-reduce: `horovodrun -np 2 python -m harness.allreduce --out FILE`.

Bus bandwidth = bytes / time x 2 (n - 1) / n: what each link carries in a ring, so that it can be held against the
hardware whatever n is (nccl-tests, doc/PERFORMANCE.md). Rank 0 writes FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from profiles.records import write_whole

WARM_UP = 3
REPEATS = 10


def bus_gb_per_s(size_bytes: int, time_ns: float, ranks: int) -> float:
    """GB (1e9 bytes) per s and link; 0 for one rank, which sends nothing."""
    return size_bytes / time_ns * 2 * (ranks - 1) / ranks


def measure(size_bytes: int) -> dict[str, Any]:
    """Median over REPEATS all-reduces of one float32 tensor; each ends when the sum lies on the device.

    `device` is where the sum came to lie.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from .exchange import hvd, on_device_of, tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    with tf.device("GPU:0" if gpus else "CPU:0"):
        mine = tf.fill((size_bytes // 4,), tf.constant(float(hvd.rank() + 1)))
    times_ns = []
    for _ in range(WARM_UP + REPEATS):
        hvd.allreduce(tf.zeros(()), name="together")  # Horovod's TensorFlow half has no barrier
        start_ns = time.perf_counter_ns()
        with on_device_of(mine):
            total = hvd.allreduce(mine, op=hvd.Sum, name="ringscope")
        tf.test.experimental.sync_devices()
        times_ns.append(time.perf_counter_ns() - start_ns)
    time_ns = statistics.median(times_ns[WARM_UP:])
    expected = hvd.size() * (hvd.size() + 1) / 2
    return {
        "rank": hvd.rank(),
        "ranks": hvd.size(),
        "device": "gpu" if "GPU" in total.device else "cpu",
        "bytes": size_bytes,
        "time_ns": int(time_ns),
        "bus_gb_per_s": bus_gb_per_s(size_bytes, time_ns, hvd.size()),
        "right": bool(tf.reduce_all(total == expected)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=16 << 20)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    answer = measure(options.bytes)
    if answer["rank"] == 0:
        write_whole(options.out, json.dumps(answer))


if __name__ == "__main__":
    main()
