"""Dropout by a hash: how many numbers stay and which, there and back, from step to step, in layers and on resume."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ringscope.ring.forms import hashed
from tests.tiers import few

BIG = (64, 96, 256)  # 1.6 million numbers: a share is told to 0.0003


def _kept(seed: tuple[int, int], shape: tuple[int, ...], rate: float, known: bool = True) -> np.ndarray:
    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run() -> Any:
        sizes = list(shape) if known else [tf.constant(shape[0]), *shape[1:]]
        return hashed.kept(tf.constant(seed, tf.int64), sizes, rate)

    return np.asarray(run())


@pytest.mark.parametrize(("known", "rate"), few(itertools.product([True, False], [0.1, 0.5, 0.97]), 2))
def test_as_many_stay_as_shall_whichever_axis_is_looked_along(rate: float, known: bool) -> None:
    stays = _kept((1337, 5), BIG, rate, known)
    deviation = np.sqrt(rate * (1 - rate))
    assert abs(stays.mean() - (1 - rate)) < 4 * deviation / np.sqrt(stays.size)
    for axis in range(3):
        along = stays.mean(axis)
        spread = along.std() / (deviation / np.sqrt(BIG[axis]))
        assert 0.9 < spread < 1.1  # as of numbers drawn apart
        one, next_ = (stays.take(range(start, BIG[axis] - 1 + start), axis).astype(float) for start in (0, 1))
        assert abs(np.corrcoef(one.ravel(), next_.ravel())[0, 1]) < 4 / np.sqrt(one.size)


@pytest.mark.parametrize("known", [True, False])
def test_of_near_seeds_the_masks_have_nothing_in_common(known: bool) -> None:
    masks = [_kept(seed, BIG, 0.5, known).astype(float).ravel() for seed in ((7, 0), (7, 1), (8, 0), (7, 2**31 + 1))]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(one.size)
            for moved in (1, 2, 256, 0x9E37):  # nor is one the other, moved
                assert abs(np.corrcoef(one[moved:], other[:-moved])[0, 1]) < 5 / np.sqrt(one.size)


def test_more_places_than_32_bits_tell_apart_are_drawn_by_parts() -> None:
    shape = (3, 1 << 11, 1 << 20)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def first_of_each() -> Any:
        whole = hashed.kept(tf.constant([1, 2], tf.int64), list(shape), 0.5)
        return whole[:, 0, : 1 << 12]

    one, two, three = np.asarray(first_of_each()).astype(float)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.08 and abs(np.corrcoef(two, three)[0, 1]) < 0.08


def _step(layer: Any, x: Any) -> list[np.ndarray]:
    """Outputs and the gradients of twice their sum."""

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with hashed.dropout(), tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            total = tf.reduce_sum(tf.cast(y, tf.float32)) * 2
        return y, tape.gradient(total, x)

    return [np.asarray(tf.cast(each, tf.float32)) for each in run(x)]


LAYERS = {
    "plain": keras.layers.Dropout,
    "of maps": keras.layers.SpatialDropout1D,
    "of rows": lambda rate, **options: keras.layers.Dropout(rate, noise_shape=(None, 1, None), **options),
}


@pytest.mark.parametrize(("kind", "dtype"), few(itertools.product(LAYERS, ["float32", "bfloat16", "float16"]), 2))
def test_what_is_dropped_there_has_no_gradient_and_the_rest_the_same_factor(kind: str, dtype: str) -> None:
    layer = LAYERS[kind](0.25, dtype=dtype)
    x = tf.constant(np.random.default_rng(0).uniform(1, 2, (16, 12, 40)), dtype)
    y, back = _step(layer, x)
    near = {"float32": 1e-6, "bfloat16": 8e-3, "float16": 1e-3}[dtype]
    x = np.asarray(tf.cast(x, tf.float32))
    np.testing.assert_allclose(y, np.where(y == 0, 0, x / 0.75), rtol=near)
    np.testing.assert_allclose(back, np.where(y == 0, 0, 2 / 0.75), rtol=near)
    assert 0.6 < (y != 0).mean() < 0.9
    if kind != "plain":
        assert ((y == 0) == (y[:, :1] == 0)).all()


def test_each_step_and_each_layer_draws_another_mask_and_a_seed_the_same() -> None:
    x = tf.ones((32, 64))
    first, second, twin = (keras.layers.Dropout(0.5, seed=seed) for seed in (1, 2, 1))
    (one, _), (two, _), (other, _), (same, _) = (_step(layer, x) for layer in (first, first, second, twin))
    np.testing.assert_array_equal(one, same)
    for mask in (two, other):
        assert abs(np.corrcoef(one.ravel(), mask.ravel())[0, 1]) < 0.1


def test_where_a_layers_seeds_are_restored_its_masks_are_those_that_were_next() -> None:
    x, layer, other = tf.ones((32, 64)), keras.layers.Dropout(0.5, seed=3), keras.layers.Dropout(0.5, seed=4)
    _step(layer, x)
    state = layer.seed_generator.state.numpy()
    following = [_step(layer, x)[0] for _ in range(2)]
    other.seed_generator.state.assign(state)
    for mask in following:
        np.testing.assert_array_equal(_step(other, x)[0], mask)


def test_a_batch_of_unknown_size_is_dropped_too() -> None:
    layer = keras.layers.Dropout(0.5)

    @tf.function(jit_compile=True, autograph=False, input_signature=[tf.TensorSpec((None, 64))])  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        with hashed.dropout():
            return layer(x, training=True)

    made = run(tf.ones((128, 64))).numpy()
    assert set(np.unique(made)) == {0, 2} and 0.45 < (made == 0).mean() < 0.55


def test_neither_random_words_nor_the_mask_are_written_to_memory() -> None:
    """Of 64 x 64 numbers: XLA's program has no generator, and hands no truth values on."""
    layer = keras.layers.Dropout(0.5)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any, weight: Any) -> Any:
        with hashed.dropout(), tf.GradientTape() as tape:
            tape.watch([x, weight])
            total = tf.reduce_sum(tf.square(layer(tf.tanh(x @ weight), training=True)) @ weight)
        return tape.gradient(total, [x, weight])

    layer(tf.ones((64, 64)))
    text = run.experimental_get_compiler_ir(tf.ones((64, 64)), tf.ones((64, 64)))(stage="optimized_hlo")
    assert "rng" not in text
    entry = text[text.index("ENTRY") :]
    assert "pred[64,64]" not in entry and "u32[64,64]" not in entry


def test_evaluation_and_rates_of_none_are_kerass() -> None:
    x = tf.ones((4, 4))
    with hashed.dropout():
        np.testing.assert_array_equal(keras.layers.Dropout(0.5)(x, training=False), x)
        np.testing.assert_array_equal(keras.random.dropout(x, 0.0), x)
        np.testing.assert_array_equal(keras.random.dropout(x, 1.0), 0 * x)


def _by_numpy(seed: tuple[int, int], shape: tuple[int, ...], rate: float, known: bool) -> np.ndarray:
    """The mask as the file describes it, one number after the other in 64-bit arithmetic."""

    def mixed(words: Any, seed: Any) -> Any:
        words = (words ^ (words >> 16)) ^ seed
        for shift, factor in ((15, 0x7FEB352D), (16, 0x846CA68B)):
            words = words * factor % 2**32
            words = words ^ (words >> shift)
        return words

    first, second = seed[0], mixed(seed[1], seed[0])
    places = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    if not known:
        apart = np.arange(shape[0], dtype=np.int64).reshape(-1, *[1] * (len(shape) - 1))
        second = mixed((first + apart * 0x9E3779B1) % 2**32, second)
        places = places[:1]
    return mixed((first + places * 0x9E3779B1) % 2**32, second) >= int(rate * 2**32)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shape", [(5,), (3, 1, 7), (4, 3, 1), (2, 3, 4, 5)])
def test_a_mask_is_the_hash_of_places_and_seed(shape: tuple[int, ...], known: bool) -> None:
    for seed in ((1337, 5), (2**31 + 7, 0), (2**32 - 1, 2**32 - 1)):
        np.testing.assert_array_equal(_kept(seed, shape, 0.4, known), _by_numpy(seed, shape, 0.4, known))


def test_a_second_mask_of_a_shape_takes_less_operations() -> None:
    def operations(masks: int, shape: list[int]) -> int:
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def run(seed: Any) -> Any:
            return [hashed.kept(seed + i, shape, 0.4) for i in range(masks)]

        return len(run.get_concrete_function(tf.TensorSpec([2], tf.int64)).graph.get_operations())

    one, two, three = (operations(masks, [4, 3, 5]) for masks in (1, 2, 3))
    assert three - two == two - one < one - 9  # places along three axes, by three operations or more each


def test_sizes_that_only_the_step_knows_give_the_same_mask() -> None:
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([3], tf.int32)])  # type: ignore[untyped-decorator]
    def run(sizes: Any) -> Any:
        return hashed.kept(tf.constant([7, 9], tf.int64), [sizes[0], sizes[1], 5, sizes[2]], 0.4)

    np.testing.assert_array_equal(run(tf.constant([2, 3, 4])), _by_numpy((7, 9), (2, 3, 5, 4), 0.4, False))
