"""What a rank pays for its batches of a tf.data pipeline, as ranks are added: CPU time per batch of its own.

    CUDA_VISIBLE_DEVICES= python -m benchmarks.input_shares --ranks 1,2,4

JPEG files, shuffled, read, decoded, resized, batched. `at the end`: what `Dataset.shard` of the finished batches costs,
which has every rank prepare all ranks' batches; `before the work`: what ring does. One process takes rank 0's share.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--samples", type=int, default=16, help="of a batch")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        names = write_images(Path(folder), options.images)
        for ranks in map(int, options.ranks.split(",")):
            for way in ("at the end", "before the work"):
                row = {"ranks": ranks, "way": way} | cost(share(pipeline(names, options.samples), ranks, way))
                rows.append(row)
                print(f"{ranks} ranks, share {way}: {row['cpu_ms_per_batch']:.1f} ms of CPU per batch", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows) + "\n")
    return 0


def write_images(folder: Path, count: int) -> list[str]:
    import tensorflow as tf

    random, names = np.random.default_rng(0), []
    for number in range(count):
        image = random.integers(0, 256, (32, 40, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        names.append(str(folder / f"{number}.jpg"))
        tf.io.write_file(names[-1], tf.io.encode_jpeg(image))
    return names


def pipeline(names: list[str], samples: int) -> Any:
    import tensorflow as tf

    def image(name: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(name), channels=3), (224, 224))

    data = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), seed=1)
    return data.map(image, num_parallel_calls=2).batch(samples, drop_remainder=True).prefetch(2)


def share(data: Any, ranks: int, way: str) -> Any:
    """Rank 0's batches of `ranks` ranks'."""
    from ringscope.ring.data.upstream import share_before_work

    if way == "at the end" or ranks == 1:
        return data.shard(ranks, 0)
    return share_before_work(data, 0, ranks).dataset


def cost(data: Any) -> dict[str, float]:
    """CPU time of the process for each batch of the second pass."""
    for _ in range(2):
        began_s, count = time.process_time(), 0
        for _ in data:
            count += 1
        seconds = time.process_time() - began_s
    return {"batches": count, "cpu_ms_per_batch": round(1e3 * seconds / count, 2)}


if __name__ == "__main__":
    sys.exit(main())
