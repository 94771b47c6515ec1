"""A rank's share taken before the work: the batches of one taken at the end, and only its own elements touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
import tensorflow as tf

from ringscope.ring.data import sharing, upstream
from tests.tiers import few

AUTO = tf.data.AUTOTUNE
Data = tf.data.Dataset


def _twice(x: Any) -> Any:
    return 2 * x


def _pair(x: Any) -> Any:
    return {"a": tf.cast(x, tf.float32), "b": tf.strings.as_string(x)}, x


def _decoded(x: Any) -> Any:
    return tf.reduce_sum(tf.io.decode_raw(tf.strings.as_string(x), tf.uint8))


SHARED: dict[str, Callable[[], Any]] = {
    "map, batch": lambda: Data.range(26).map(_twice).batch(3),
    "side by side, dropped, prefetched": lambda: (
        Data.range(50).map(_twice, num_parallel_calls=AUTO).batch(4, drop_remainder=True).prefetch(2)
    ),
    "batch, map": lambda: Data.range(26).batch(3).map(_twice).prefetch(AUTO),
    "structures": lambda: Data.range(40).map(_pair).batch(5),
    "a shuffle after the map": lambda: Data.range(41).map(_decoded).shuffle(16, seed=3).batch(4),
    "a shuffle before the map": lambda: Data.range(41).shuffle(16, seed=3).map(_decoded).batch(4),
    "repeated before": lambda: Data.range(7).repeat().map(_twice).batch(4),
    "repeated after": lambda: Data.range(48).map(_twice).batch(4).repeat(2),
    "of unlike shapes": lambda: Data.range(24).map(lambda x: tf.range(x % 3)).map(tf.size).batch(4),
    "kept in memory": lambda: Data.range(24).map(_twice).cache().batch(4).prefetch(1),
    "a random map first": lambda: (
        Data.range(24).map(lambda x: x + 0 * tf.random.uniform([], 0, 2, tf.int64)).map(_twice).batch(3)
    ),
    "from files": lambda: (
        Data.list_files([__file__] * 12, shuffle=False).map(tf.io.read_file).map(tf.strings.length).batch(2)
    ),
}


@pytest.mark.parametrize(("name", "size"), few(product(SHARED, [2, 3])))
def test_the_batches_are_those_of_a_share_taken_at_the_end(name: str, size: int) -> None:
    for rank in range(size):
        # A shuffle gives every iterator another order, so each way has a data set of its own.
        tf.keras.utils.set_random_seed(1)
        data = SHARED[name]()
        tf.keras.utils.set_random_seed(1)
        plain = SHARED[name]()
        groups = int(data.cardinality()) // size if int(data.cardinality()) > 0 else 10
        found = upstream.share_before_work(data, rank, size)
        assert found.works and found.dataset is not None, found.why
        assert found.dataset.element_spec == data.element_spec
        expected = [*plain.shard(size, rank).take(groups).as_numpy_iterator()]
        own = [*found.dataset.take(groups).as_numpy_iterator()]
        assert len(own) == len(expected) == groups
        for ours, theirs in zip(own, expected, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


def test_every_epoch_is_shuffled_anew_and_alike() -> None:
    data = Data.range(40).map(_twice).shuffle(40, seed=5, reshuffle_each_iteration=True).batch(5)
    pushed, plain = upstream.share_before_work(data, 1, 2).dataset, data.shard(2, 1)
    epochs = [[batch.tolist() for batch in each.as_numpy_iterator()] for each in (pushed, pushed, plain, plain)]
    assert epochs[0] == epochs[2] and epochs[1] == epochs[3] and epochs[0] != epochs[1]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_rank_prepares_its_own_elements_and_no_others(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "PLAIN", upstream.PLAIN | {"PyFunc", "EagerPyFunc"})
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(int(x))
        return x

    data = Data.range(64).map(lambda x: tf.ensure_shape(tf.numpy_function(counted, [x], tf.int64), [])).batch(4)
    own = sharing._share_of_dataset(data, 0, size, "together", None, bounded=False)
    taken = np.concatenate([*own.as_numpy_iterator()])
    assert int(own.cardinality()) == 16 // size
    assert sorted(seen) == sorted(taken.tolist()) and len(seen) == 64 // size


def _slowly() -> Iterator[int]:
    yield from range(24)


def test_data_of_unknown_length_are_shared_by_whole_groups_of_whole_batches() -> None:
    data = Data.from_generator(_slowly, output_signature=tf.TensorSpec((), tf.int64)).map(_twice)
    for rank in (0, 1):
        own = sharing._share_of_dataset(data.batch(4, drop_remainder=True), rank, 2, "together", None, bounded=False)
        whole = upstream.of_each_group(data.batch(4, drop_remainder=True), 2, rank, 1, whole=True)
        assert [b.tolist() for b in own.as_numpy_iterator()] == [b.tolist() for b in whole.as_numpy_iterator()]


KEPT = {
    "goes through take": lambda: Data.range(24).map(_twice).batch(4).take(3),
    "draws random numbers": lambda: Data.range(24).map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64)).batch(4),
    "calls Python": lambda: Data.range(24).map(lambda x: tf.numpy_function(int, [x], tf.int64)).batch(4),
    "in no fixed order": lambda: Data.range(24).map(_twice, num_parallel_calls=2, deterministic=False).batch(4),
    "writes a file": lambda: Data.range(24).map(_twice).cache("/tmp/never-written").batch(4),
    "repeat": lambda: Data.range(20).map(_twice).batch(4).repeat(2),  # 5 batches: an epoch's last and the next's first
    "filter": lambda: Data.range(24).map(_twice).batch(4).filter(lambda x: True),
}


@pytest.mark.parametrize("why", KEPT)
def test_what_cannot_be_taken_apart_is_told_with_its_price(why: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = upstream.share_before_work(KEPT[why](), 0, 2)
    assert found.dataset is None and found.works and why in found.why


def test_data_that_nothing_is_done_to_are_not_told_of() -> None:
    for data in (Data.range(24).batch(4), Data.range(24).batch(4).repeat().prefetch(1), Data.range(5)):
        found = upstream.share_before_work(data, 0, 2)
        assert found.dataset is None and not found.works
