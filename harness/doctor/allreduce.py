"""Measure the all-reduce on each rank: `horovodrun -np 2 python -m harness.doctor.allreduce --out FILE`.

On several hosts (`horovodrun -np 8 -H a:4,b:4 ...`) FILE also describes their network for `ringscope predict --network
FILE`.

Bus bandwidth = bytes / time x 2 (n - 1) / n: the load on each link of a ring, so that it can be compared with the
hardware for any n (nccl-tests, doc/PERFORMANCE.md). The time of one all-reduce is taken from IN_A_ROW of them launched
one after the other: (time of the row - time of a single one) / (IN_A_ROW - 1). Within a row Horovod's negotiation
between the ranks, some ms, overlaps with the previous all-reduce. Rank 0 writes FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiles.ground.files import write_whole

WARM_UP = 3
REPEATS = 10
IN_A_ROW = 5
SIZES = (1 << 16, 1 << 20, 1 << 24, 1 << 26)  # bytes; latency limits the smallest vector, bandwidth the largest


def bus_gb_per_s(size_bytes: int, time_ns: float, ranks: int) -> float:
    """Bus bandwidth in GB (1e9 bytes) per s; 0 for one rank, which sends nothing."""
    return size_bytes / time_ns * 2 * (ranks - 1) / ranks


def measure(sizes: Sequence[int]) -> dict[str, Any]:
    """Measure the all-reduce of float32 vectors of `sizes` bytes: ns each, as the median over REPEATS. Returns one
    dict: `sweep` lists the bytes and time of each size; all other keys describe the largest vector and the hosts."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from ringscope import ring
    from ringscope.ring.internals.frameworks import hvd

    ring.init()
    each = [_measured(size) for size in sorted(sizes)]
    of_hosts = {"rank": hvd.rank(), "ranks": hvd.size(), "hosts": hvd.cross_size()}
    sweep = [{name: one[name] for name in ("bytes", "time_ns")} for one in each]
    return of_hosts | each[-1] | {"right": all(one["right"] for one in each), "sweep": sweep}


def _measured(size_bytes: int) -> dict[str, Any]:
    from ringscope.ring.internals.frameworks import hvd, tf

    with tf.device("GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"):
        mine = tf.fill((size_bytes // 4,), tf.constant(float(hvd.rank() + 1)))

    @tf.function
    def reduced(times: int) -> Any:
        value = mine
        for i in range(times):
            value = hvd.allreduce(value, op=hvd.Average, name=f"ringscope_{i}")
        return value

    def timed_ns(times: int) -> tuple[int, Any]:
        # starts the ranks together; Horovod's TensorFlow API has no barrier
        hvd.allreduce(tf.zeros(()), name="together")
        start_ns = time.perf_counter_ns()
        value = reduced(times)
        tf.test.experimental.sync_devices()
        return time.perf_counter_ns() - start_ns, value

    added_ns = []
    for _ in range(WARM_UP + REPEATS):
        (one_ns, _), (row_ns, averages) = timed_ns(1), timed_ns(IN_A_ROW)
        added_ns.append((row_ns - one_ns) / (IN_A_ROW - 1))
    time_ns = statistics.median(added_ns[WARM_UP:])
    return {
        "device": "gpu" if "GPU" in averages.device else "cpu",
        "bytes": size_bytes,
        "time_ns": int(time_ns),
        "bus_gb_per_s": bus_gb_per_s(size_bytes, time_ns, hvd.size()),
        "right": bool(tf.reduce_all(averages == (hvd.size() + 1) / 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    answer = measure(options.bytes)
    if answer["rank"] == 0:
        write_whole(options.out, json.dumps(answer))


if __name__ == "__main__":
    main()
