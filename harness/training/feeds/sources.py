"""Sources of samples: synthetic samples made from a seed, or a directory of TFRecords.

The joined batch of N ranks equals the batch of one rank with N times the samples: sample j of step i on rank r is
number (i * N + r) * batch + j of the whole sequence. Synthetic samples are made by NumPy alone, so that TensorFlow is
loaded only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from profiles.ground.errors import RingscopeError
from profiles.runs.cell import TFRECORDS

from ..models import Spec

POOL_BYTES = 128 * 1024**2
POOL_BATCHES = 64


class Source(Protocol):
    """Endless batches for this rank. `arrays` yields NumPy batches; `dataset` is a tf.data.Dataset of the same batches,
    without prefetch.

    Labels are int64: TensorFlow keeps int32 tensors in host memory, so a step compiled by XLA would begin with a copy
    of them, which waits for the previous step: 2 ms of 41 on an H200 (docs/results).
    """

    batch: int
    dtype: str

    def arrays(self) -> Iterator[tuple[Any, Any]]: ...

    def dataset(self) -> Any: ...


class Synthetic:
    """Random samples from a pool of whole global batches (at most some 128 MiB of uint8 in all, at least one batch).

    batch: this rank's samples per step. rank, size: this rank, and the number of ranks. dtype: float32 (-1 to 1) or
    uint8. threads: number of tf.data's threads. batches: the most batches in the pool.
    """

    def __init__(
        self,
        spec: Spec,
        batch: int,
        *,
        rank: int = 0,
        size: int = 1,
        dtype: str = "float32",
        seed: int = 0,
        threads: int = 1,
        batches: int = POOL_BATCHES,
    ) -> None:
        self.batch, self.dtype, self._threads = batch, dtype, threads
        sample_bytes = int(np.prod(spec.input_shape))
        self._batches = max(1, min(batches, POOL_BYTES // (batch * size * sample_bytes)))
        firsts = [(i * size + rank) * batch for i in range(self._batches)]
        x = np.concatenate([_random_rows(seed, first, batch, sample_bytes) for first in firsts])
        x = x.reshape(-1, *spec.input_shape)
        self._x = scaled(x, dtype)
        label_bytes = np.concatenate([_random_rows(seed + 1_000_003, first, batch, 8) for first in firsts])
        self._y = (label_bytes.view(np.uint64).ravel() % max(2, spec.classes)).astype(np.int64)

    def arrays(self) -> Iterator[tuple[Any, Any]]:
        while True:
            for i in range(self._batches):
                rows = slice(i * self.batch, (i + 1) * self.batch)
                yield self._x[rows], self._y[rows]

    def dataset(self) -> Any:
        import tensorflow as tf

        with tf.device("/CPU:0"):
            x, y = tf.constant(self._x), tf.constant(self._y)
        batch = self.batch

        def cut(i: Any) -> tuple[Any, Any]:
            return x[i * batch : (i + 1) * batch], y[i * batch : (i + 1) * batch]

        batches = tf.data.Dataset.range(self._batches).repeat().map(cut)
        return batches.with_options(options(self._threads))


def _random_rows(seed: int, first: int, count: int, row_bytes: int) -> Any:
    """Rows `first` to `first + count` of an endless table of random bytes, shape (count, row_bytes). A row has the same
    bytes in every call: Philox makes 32 bytes per step of its counter, so it can start at any row."""
    counts = -(-row_bytes // 32)
    generator = np.random.Philox(key=seed)
    generator.advance(first * counts)
    words = generator.random_raw(count * counts * 4)
    return words.view(np.uint8).reshape(count, counts * 32)[:, :row_bytes].copy()


class TFRecords:
    """Reads tf.train.Examples with `image/encoded` (JPEG, PNG) or `image/raw` (uint8 of the model's shape), and with
    `image/class/label`.

    If the number of files divides by the number of ranks, each rank reads its own files. Otherwise each rank reads all
    files and keeps every N-th example. The examples repeat without end. Raises RingscopeError if the directory has no
    TFRecords, or fewer examples than one step of all ranks takes.
    """

    def __init__(
        self,
        directory: Path,
        spec: Spec,
        batch: int,
        *,
        rank: int = 0,
        size: int = 1,
        dtype: str = "float32",
        threads: int = 1,
    ) -> None:
        import tensorflow as tf

        self.batch, self.dtype = batch, dtype
        self._files = sorted(str(path) for path in directory.glob(TFRECORDS) if path.is_file())
        if not self._files:
            raise RingscopeError(f"{directory}: holds no {TFRECORDS} file; give a directory that does")
        self._spec, self._rank, self._size, self._threads = spec, rank, size, threads
        examples = sum(1 for _ in tf.data.TFRecordDataset(self._files).take(batch * size))
        if examples < batch * size:
            raise RingscopeError(
                f"{directory}: {examples} examples do not fill one batch of {batch} on each of {size} ranks; take a"
                " smaller batch"
            )

    def dataset(self) -> Any:
        import tensorflow as tf

        by_file = len(self._files) % self._size == 0
        files = self._files[self._rank :: self._size] if by_file else self._files
        # Files are not shuffled: each rank must number the examples alike.
        examples = tf.data.TFRecordDataset(files, num_parallel_reads=4).with_options(options(self._threads)).repeat()
        if not by_file:
            examples = examples.shard(self._size, self._rank)
        samples = examples.map(self._parse, num_parallel_calls=self._threads, deterministic=True)
        return samples.batch(self.batch, drop_remainder=True)

    def arrays(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.dataset().as_numpy_iterator())

    def _parse(self, example: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        features = tf.io.parse_single_example(
            example,
            {
                "image/encoded": tf.io.FixedLenFeature([], tf.string, default_value=""),
                "image/raw": tf.io.FixedLenFeature([], tf.string, default_value=""),
                "image/class/label": tf.io.FixedLenFeature([], tf.int64),
            },
        )
        shape = self._spec.input_shape

        def decode() -> Any:
            image = tf.io.decode_image(features["image/encoded"], channels=3, expand_animations=False)
            return tf.cast(tf.round(tf.image.resize(image, shape[:2])), tf.uint8)

        def raw() -> Any:
            return tf.reshape(tf.io.decode_raw(features["image/raw"], tf.uint8), shape)

        x = tf.cond(features["image/raw"] == "", decode, raw) if len(shape) == 3 else raw()
        x = scaled(tf.ensure_shape(x, shape), self.dtype)
        return x, features["image/class/label"] % max(2, self._spec.classes)


def scaled(x: Any, dtype: str) -> Any:
    """uint8 samples, an array or a tensor, as samples of a source's dtype: float32 from -1 to 1, or unchanged."""
    if dtype == "uint8":
        return x
    if isinstance(x, np.ndarray):
        return x.astype(np.float32) / np.float32(127.5) - np.float32(1)
    import tensorflow as tf

    return tf.cast(x, tf.float32) / 127.5 - 1.0


def options(threads: int) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    # Without this tf.data would add a prefetch, and the feed `host` would be the same as `prefetch`.
    options.experimental_optimization.inject_prefetch = False
    return options
