"""A generated task that can be learnt, and whose best accuracy is known.

Each sample is of one of at most 10 classes, drawn alike, and a class has a pattern of its own. In sequences (shape
(steps, features)) it is the same at every step and so faint that only many steps together tell it from the noise: a
model must gather what it sees. The noise confuses no two classes of whole samples. LABEL_NOISE of all labels are wrong,
in training and in validation samples: the best accuracy that any model can have on new ones is
1 - LABEL_NOISE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..models import Spec
from .sources import options

LABEL_NOISE = 0.02
BEST_ACCURACY = 1 - LABEL_NOISE
CLASSES = 10
NOISE, SIGNAL = 0.3, 0.4  # of -1..1
FAINT = 0.05  # the signal of one step of a sequence
COARSE = 4  # cells of an image's pattern, in width and in height
SIGNS = np.array([-1, 1], np.float32)
VALIDATION, _TRAINING = 1, 0  # parts


def samples(spec: Spec, count: int, *, seed: int, part: int) -> tuple[Any, Any]:
    """x: uint8 of (count, *spec.input_shape), -1..1 as 0..255; y: int64 of (count,). Another `part` has other samples
    of the same task."""
    drawn = np.random.default_rng([seed, part])
    classes = min(CLASSES, max(2, spec.classes))
    truth = drawn.integers(classes, size=count)
    x = (FAINT if len(spec.input_shape) == 2 else SIGNAL) * patterns(spec, classes, seed)[truth]
    x = x + NOISE * drawn.standard_normal(x.shape, dtype=np.float32)
    wrong = drawn.random(count) < LABEL_NOISE
    label = np.where(wrong, (truth + drawn.integers(1, classes, size=count)) % classes, truth)
    return np.round((np.clip(x, -1, 1) + 1) * 127.5).astype(np.uint8), label.astype(np.int64)


def patterns(spec: Spec, classes: int, seed: int) -> Any:
    """+1 and -1 per class: float32 of (classes, *spec.input_shape). Images have cells, sequences equal steps."""
    drawn = np.random.default_rng([seed, 2])
    if len(spec.input_shape) == 2:
        steps, features = spec.input_shape
        return np.repeat(drawn.choice(SIGNS, size=(classes, 1, features)), steps, axis=1)
    if len(spec.input_shape) == 1:
        return drawn.choice(SIGNS, size=(classes, *spec.input_shape))
    high, wide, channels = spec.input_shape
    cells = drawn.choice(SIGNS, size=(classes, COARSE, COARSE, channels))
    rows, columns = np.arange(high) * COARSE // high, np.arange(wide) * COARSE // wide
    return cells[:, rows][:, :, columns]


class Generated:
    """A feed's source (harness.training.feeds.sources.Source): epochs without end, each in an order of its own.

    Rank r has the r-th part of every batch over all ranks; what fills no such batch is left out of its epoch.
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
        count: int = 4096,
    ) -> None:
        self.batch, self.dtype, self._threads, self._seed = batch, dtype, threads, seed
        self._rank, self._size = rank, size
        self.count = max(count, batch * size)  # one batch over all ranks at least
        self.steps_per_epoch = self.count // (batch * size)
        self._x, self._y = samples(spec, self.count, seed=seed, part=_TRAINING)
        self._spec = spec

    def held_out(self) -> tuple[Any, Any]:
        """This rank's part of the validation samples, a quarter as many as there are for training, as arrays."""
        x, y = samples(self._spec, max(1000, self.count // 4), seed=self._seed, part=VALIDATION)
        return self._cast(x[self._rank :: self._size]), y[self._rank :: self._size]

    def trained_on(self) -> tuple[Any, Any]:
        """This rank's part of as many training samples."""
        mine = slice(self._rank, max(1000, self.count // 4), self._size)
        return self._cast(self._x[mine]), self._y[mine]

    def arrays(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.dataset().as_numpy_iterator())

    def dataset(self) -> Any:
        with tf.device("/CPU:0"):
            x, y = tf.constant(self._x), tf.constant(self._y)
        batch, steps, seed = self.batch, self.steps_per_epoch, self._seed
        count, rank, size = self.count, self._rank, self._size

        def drawn(number: Any) -> tuple[Any, Any]:
            epoch, step = number // steps, number % steps
            order = tf.random.experimental.stateless_shuffle(tf.range(count), [seed, tf.cast(epoch, tf.int32)])
            first = (tf.cast(step, tf.int32) * size + rank) * batch
            mine = order[first : first + batch]
            return self._cast(tf.gather(x, mine)), tf.gather(y, mine)

        numbers = tf.data.Dataset.range(np.iinfo(np.int64).max)
        batches = numbers.map(drawn, num_parallel_calls=self._threads, deterministic=True)
        return batches.with_options(options(self._threads))

    def _cast(self, x: Any) -> Any:
        if self.dtype == "uint8":
            return x
        if isinstance(x, np.ndarray):
            return x.astype(np.float32) / np.float32(127.5) - np.float32(1)
        return tf.cast(x, tf.float32) / 127.5 - 1.0
