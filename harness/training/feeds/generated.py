"""A generated classification task that a model can learn, with a known best accuracy.

Samples are drawn evenly from at most 10 classes. Each class has a fixed pattern, to which noise is added. In sequences,
shape (steps, features), the pattern is the same at every step and weak against the noise, so a model must combine many
steps; over a whole sample the noise confuses no two classes.

LABEL_NOISE of all labels are wrong, in training and in validation samples, so the best possible accuracy on new samples
is 1 - LABEL_NOISE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..models import Spec
from .sources import options, scaled

LABEL_NOISE = 0.02
BEST_ACCURACY = 1 - LABEL_NOISE
CLASSES = 10
NOISE, SIGNAL = 0.3, 0.4  # weights of noise and pattern in a sample, whose values lie in -1..1
FAINT = 0.05  # the strength of the pattern at one step of a sequence
COARSE = 4  # an image's pattern has this many squares per side
SIGNS = np.array([-1, 1], np.float32)
VALIDATION, _TRAINING = 1, 0  # numbers of the random streams that draw validation and training samples


def samples(spec: Spec, count: int, *, seed: int, part: int) -> tuple[Any, Any]:
    """x: uint8 of (count, *spec.input_shape), with -1..1 stored as 0..255; y: int64 of (count,). part: VALIDATION or
    _TRAINING, which draw different samples of the same task."""
    drawn = np.random.default_rng([seed, part])
    classes = min(CLASSES, max(2, spec.classes))
    truth = drawn.integers(classes, size=count)
    x = (FAINT if len(spec.input_shape) == 2 else SIGNAL) * patterns(spec, classes, seed)[truth]
    x = x + NOISE * drawn.standard_normal(x.shape, dtype=np.float32)
    wrong = drawn.random(count) < LABEL_NOISE
    label = np.where(wrong, (truth + drawn.integers(1, classes, size=count)) % classes, truth)
    return np.round((np.clip(x, -1, 1) + 1) * 127.5).astype(np.uint8), label.astype(np.int64)


def patterns(spec: Spec, classes: int, seed: int) -> Any:
    """Each class's pattern of +1 and -1: float32 of (classes, *spec.input_shape). Images have COARSE x COARSE cells of
    one value, sequences the same values at every step."""
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
    """A source (sources.py) of endless epochs, each in another order. Rank r gets the r-th part of every global
    batch; samples that fill no global batch are left out of an epoch."""

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
        self.count = max(count, batch * size)  # the samples must fill at least one global batch
        self.steps_per_epoch = self.count // (batch * size)
        self._x, self._y = samples(spec, self.count, seed=seed, part=_TRAINING)
        self._spec = spec

    def held_out(self) -> tuple[Any, Any]:
        """This rank's share of the validation samples, as arrays. All ranks together have a quarter as many as training
        samples, or 1000 if that is more."""
        x, y = samples(self._spec, max(1000, self.count // 4), seed=self._seed, part=VALIDATION)
        return scaled(x[self._rank :: self._size], self.dtype), y[self._rank :: self._size]

    def trained_on(self) -> tuple[Any, Any]:
        """This rank's share of training samples, as arrays; there are as many as validation samples."""
        mine = slice(self._rank, max(1000, self.count // 4), self._size)
        return scaled(self._x[mine], self.dtype), self._y[mine]

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
            return scaled(tf.gather(x, mine), self.dtype), tf.gather(y, mine)

        numbers = tf.data.Dataset.range(np.iinfo(np.int64).max)
        batches = numbers.map(drawn, num_parallel_calls=self._threads, deterministic=True)
        return batches.with_options(options(self._threads))
