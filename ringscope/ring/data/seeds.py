"""Random seeds: one for all ranks until the model is distributed; then each rank has its own TensorFlow and Keras
generators.

All ranks prepare data alike, so that their shares do not overlap: Python, NumPy and tf.data's shuffles draw the same
numbers on every rank. Noise inside a train step, such as dropout, must differ between ranks; otherwise all ranks would
train with the same noise.
"""

from __future__ import annotations

import pickle
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from tensorflow.python.eager import context

from .. import say
from ..internals.frameworks import tf
from ..internals.laid_over import laid_for_good

LARGEST = 2**31 - 1
# Large, so that the ranks' seeds are never the small numbers that scripts choose.
STRIDE = 1_000_003
# names in Keras's global state; only releases after 3.12 have a constant for them
KERAS_GENERATOR = "global_seed_generator"

_data_seed: int | None = None  # seed of tf.data's shuffles, once each rank has a TensorFlow seed of its own
_data_numbers = random.Random()
_sown: object = None  # TensorFlow's random generator when this rank got its own seed
_apart: Any = None  # this rank's own Keras generator


def sow(seed: int | bool | None, rank: int, share: Callable[[Any], Any], before: int | None = None) -> int | None:
    """Seed Python, NumPy and TensorFlow alike on all ranks; returns the seed.

    seed: None: rank 0 draws one; False: nothing is seeded. share: gives every rank rank 0's value. before: the seed of
    this script before it was restarted.
    """
    if seed is False:
        return None
    if seed is None or seed is True:
        drawn = secrets.randbelow(LARGEST) if before is None else before
        seed = int(share(drawn if rank == 0 else None))
        if rank == 0:
            say.line(f"seed {seed} on all ranks; ring.init(seed={seed}) repeats it")
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
    return seed


def set_apart(rank: int, share: Callable[[Any], Any]) -> None:
    """Give this rank its own TensorFlow and Keras random generators; tf.data's shuffles stay equal on all ranks.

    Rank 0 keeps its generators, so that one rank trains as it would alone. A later call does nothing, unless the script
    has meanwhile set TensorFlow's seed or cleared Keras's session. share: gives every rank rank 0's value.
    """
    global _data_seed, _sown
    seed = context.global_seed()
    own = None if seed is None else int(seed)  # NumPy's integers cannot be sent
    rank_0s, changed = share((own, _is_set_since()))
    if rank_0s is None:
        return
    _set_keras_apart(rank)
    if not (changed or _is_set_since()):
        return
    if rank_0s != _data_seed:
        _data_seed = rank_0s
        _data_numbers.seed(rank_0s)
    _seed_data_sets()
    # A script may have seeded each rank differently itself.
    if rank and own in (rank_0s, None):
        own = (rank_0s + rank * STRIDE) % LARGEST
        tf.random.set_seed(own)
    _sown = context.context()._rng


@contextmanager
def as_on_rank_0(owner: Any, share: Callable[[Any], Any]) -> Iterator[None]:
    """Within this context Python, NumPy and the generators that the owner holds draw the same numbers as on rank 0.

    Otherwise ranks that have drawn different numbers (in threads that augment, or for a plot on rank 0 alone) would
    shuffle the data differently. Afterwards each generator continues as if nothing had been drawn. share: gives every
    rank rank 0's value.
    """
    states = _states(owner)
    own = [get() for get, _ in states]
    rank_0s = share(own)
    alike = len(rank_0s) != len(own) or pickle.dumps(rank_0s) == pickle.dumps(own)
    if not alike:
        for (_, put), state in zip(states, rank_0s, strict=True):
            put(state)
    try:
        yield
    finally:
        if not alike:
            for (_, put), state in zip(states, own, strict=True):
                put(state)


def _states(owner: Any) -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """(read, write) functions for the state of each random generator, in the order of the owner's attribute names."""
    found: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
        (random.getstate, random.setstate),
        (np.random.get_state, np.random.set_state),
    ]
    for _, held in sorted(vars(owner).items()):
        if isinstance(held, random.Random):
            found.append((held.getstate, held.setstate))
        elif isinstance(held, np.random.RandomState):
            found.append((held.get_state, held.set_state))
        elif isinstance(held, np.random.Generator):
            found.append((partial(getattr, held.bit_generator, "state"), partial(setattr, held.bit_generator, "state")))
    return found


def _is_set_since() -> bool:
    """True if the script has set TensorFlow's seed after `set_apart`; that makes a new generator, even with an equal
    seed."""
    return context.context()._rng is not _sown


def _set_keras_apart(rank: int) -> None:
    """Give this rank its own Keras generator, once for each that Keras makes: `clear_session` makes a new one."""
    global _apart
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    generator = global_state.get_global_attribute(KERAS_GENERATOR)
    if generator is not None and generator is _apart:
        return
    # Keras draws the generator's seed from Python's random numbers, as layers do for theirs. The state is restored, so
    # that layers get the same seeds as without ring.
    before, is_new = random.getstate(), generator is None
    _apart = seed_generator.global_seed_generator()
    random.setstate(before)
    # With the state restored, the next layer will get the same seed as this generator. So a new generator is moved by
    # STRIDE.
    state, moved = _apart.state, [rank, STRIDE if is_new else 0]
    state.assign(state.value + tf.constant(moved, state.value.dtype))


def _seed_data_sets() -> None:
    """Make tf.data draw the seeds of its shuffles from numbers that all ranks share."""
    from tensorflow.python.data.util import random_seed

    def by_ring(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def get_seed(seed: Any) -> Any:
            if _data_seed is None or _is_set_since():
                return own(seed)
            second = _data_numbers.randint(0, LARGEST) if seed is None else seed
            return tf.constant(_data_seed, tf.int64), tf.cast(second, tf.int64)

        return get_seed

    laid_for_good(random_seed, "get_seed", by_ring)
