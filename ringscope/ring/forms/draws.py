"""Random numbers of `tf.random` in a compiled step, drawn from seeds that this process keeps.

For TensorFlow's stateful random operations XLA has one generator, which begins alike in every process, whatever the
seed: the noise would be equal on all ranks and in all runs. Here each operation draws from a seed, by the rules of
`tf.random.set_seed`: operations with equal seeds draw equal numbers, and operations without a seed continue one
sequence.
"""

from __future__ import annotations

import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from ..models import kept

GIVEN = 1  # returned as TensorFlow's global seed for an operation that has a seed of its own; 0 for one that has none


@contextmanager
def from_seeds(model: Any) -> Iterator[None]:
    """Within this context, traced `tf.random` operations draw from seeds."""
    from tensorflow.python.framework import random_seed
    from tensorflow.python.ops import gen_random_ops

    generators = kept(model).draws
    traced: Counter[int] = Counter()

    def next_seed(given: int, seed: int) -> Any:
        key = None
        if given == GIVEN:
            key = seed, traced[seed]
            traced[seed] += 1
        if key not in generators:
            generators[key] = _generator(seed if given == GIVEN else None)
        return tf.cast(generators[key].next(), tf.int32)

    def seeded(draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*arguments: Any, seed: int = 0, seed2: int = 0, name: str | None = None, **options: Any) -> Any:
            return draw(next_seed(seed, seed2), *arguments, **options)

        return drawn

    def get_seed(seed: int | None) -> tuple[int, int]:
        return (0, 0) if seed is None else (GIVEN, seed)

    in_its_place = {name: seeded(draw) for name, draw in DRAWN.items()}
    with laid_over(random_seed, get_seed=get_seed), laid_over(gen_random_ops, **in_its_place):
        yield


def _generator(seed: int | None) -> Any:
    """A SeedGenerator, made from this process's seed and the operation's own seed, if it has one."""
    from keras.random import SeedGenerator
    from tensorflow.python.eager import context

    own = context.global_seed()
    if own is None:
        own = secrets.randbelow(2**31)
    with tf.init_scope():
        return SeedGenerator(zlib.crc32(f"{own} {seed}".encode()))


def _shuffle(seed: Any, value: Any) -> Any:
    """Shuffle by sorting random keys, because XLA has no kernel for TensorFlow's seeded shuffle."""
    keys = tf.random.stateless_uniform(tf.shape(value)[:1], seed, minval=None, maxval=None, dtype=tf.int32)
    return tf.gather(value, tf.argsort(keys))


# Operations in gen_random_ops that TensorFlow's functions call. XLA has no kernel for gamma and Poisson.
DRAWN: dict[str, Callable[..., Any]] = {
    "random_standard_normal": lambda seed, shape, dtype: tf.random.stateless_normal(shape, seed, dtype=dtype),
    "truncated_normal": lambda seed, shape, dtype: tf.random.stateless_truncated_normal(shape, seed, dtype=dtype),
    "random_uniform": lambda seed, shape, dtype: tf.random.stateless_uniform(shape, seed, dtype=dtype),
    "random_uniform_int": lambda seed, shape, low, high: tf.random.stateless_uniform(
        shape, seed, low, high, dtype=tf.convert_to_tensor(low).dtype
    ),
    "multinomial": lambda seed, logits, count, output_dtype: tf.random.stateless_categorical(
        logits, count, seed, dtype=output_dtype
    ),
    "random_shuffle": _shuffle,
}
