"""Attention as users write it out, by the fused kernel: taken where it is one, and equal to what was written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from ringscope.ring.forms import attention, cudnn_dropout, hashed, last_axis, padded_products, products, written
from tests.ring.forms.test_attention_dropout import Kernel
from tests.tiers import few

BATCH, LENGTH, HEADS, SIZE = 3, 10, 2, 8
WIDTH = HEADS * SIZE
Attend = Callable[[Any, Any, Any, Any, Any], Any]


def as_nanogpt(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    q, k, v = (ops.transpose(each, (0, 2, 1, 3)) for each in (q, k, v))
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / np.sqrt(SIZE)
    scores = ops.where(ops.tril(ops.ones((LENGTH, LENGTH), dtype="bool")), scores, -1e9)
    return ops.transpose(ops.matmul(layer.dropped(ops.softmax(scores, axis=-1)), v), (0, 2, 1, 3))


def by_masked_fill(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * (1.0 / np.sqrt(SIZE))
    scores = ops.where(ops.tril(ops.ones((1, 1, LENGTH, LENGTH))) == 0, float("-inf"), scores)
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.softmax(scores, axis=-1)), v)


def as_alibi(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    far = ops.arange(LENGTH)[None, :] - ops.arange(LENGTH)[:, None]
    bias = ops.cast(far, "float32")[None] * np.array([0.5, 0.25], np.float32)[:, None, None]
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5, "float32")
    scores = scores + ops.where(far > 0, -1e9, bias)
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.cast(ops.softmax(scores), v.dtype)), v)


def with_a_query_that_weighs_low_numbers(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    """The first query sees every second key, by numbers that would each hide a key of another query."""
    low = np.where(np.tri(LENGTH), 0.5, -1e9)
    low[0] = np.where(np.arange(LENGTH) % 2, -(2.0**15), -(2.0**14))
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5, "float32") + low.astype(np.float32)
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.cast(ops.softmax(scores), v.dtype)), v)


# As a layer keeps its masks; TensorFlow makes a constant of what is smaller.
LATER = np.broadcast_to(np.triu(np.ones((LENGTH, LENGTH), np.float32), 1), (1, HEADS, LENGTH, LENGTH))
KEPT, KEPT_LOW = tf.constant(LATER == 0), tf.constant(-1e9 * LATER)


def with_a_kept_mask(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.where(KEPT, ops.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5, -1e9)
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.softmax(scores)), v)


def with_kept_numbers(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5
    scores = scores + ops.cast(KEPT_LOW, scores.dtype)
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.softmax(scores)), v)


def as_the_first_gpt2(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5
    lets = tf.reshape(tf.cast(tf.range(LENGTH)[:, None] >= tf.range(LENGTH), q.dtype), [1, 1, LENGTH, LENGTH])
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.softmax(scores * lets - 1e4 * (1 - lets))), v)


def scaled_after_the_mask(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.where(np.tri(LENGTH, dtype=bool), ops.einsum("bqhd,bkhd->bhqk", q, k), -1e4) * SIZE**-0.5
    return ops.einsum("bhqk,bkhd->bqhd", layer.dropped(ops.softmax(scores)), v)


def as_tensorflows_tutorial(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    q, k, v = (tf.transpose(each, [0, 2, 1, 3]) for each in (q, k, v))
    scores = tf.matmul(q, k, transpose_b=True) / tf.math.sqrt(tf.cast(tf.shape(k)[-1], q.dtype))
    scores += tf.cast(1 - tf.cast(seen, tf.float32), q.dtype)[:, tf.newaxis, tf.newaxis] * -1e9
    return tf.transpose(layer.dropped(tf.nn.softmax(scores, axis=-1)) @ v, [0, 2, 1, 3])


def dropped_in_float32(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.cast(ops.einsum("btnh,bsnh->bnts", q, k), "float32") * SIZE**-0.5
    shares = layer.dropped_wide(ops.softmax(scores))
    return ops.einsum("bnts,bsnh->btnh", ops.cast(shares, v.dtype), v)


def by_einsum(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.einsum("btnh,bsnh->bnts", q * SIZE**-0.5, k)
    shares = layer.softmax(scores, mask=ops.cast(seen, "bool")[:, None, None])
    return ops.einsum("bnts,bsnh->btnh", layer.dropped(shares), v)


def in_float32(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = 0.3 * ops.matmul(ops.transpose(q, (0, 2, 1, 3)), ops.transpose(k, (0, 2, 3, 1)))
    place = ops.arange(LENGTH)
    causal = place[:, None] >= place[None]
    scores = ops.where(
        ops.logical_and(causal, ops.cast(seen, "bool")[:, None, None]), ops.cast(scores, "float32"), -np.inf
    )
    shares = layer.dropped(ops.cast(ops.softmax(scores), v.dtype))
    return ops.transpose(ops.matmul(shares, ops.transpose(v, (0, 2, 1, 3))), (0, 2, 1, 3))


def one_head(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    q, k, v = (ops.reshape(each, (BATCH, LENGTH, WIDTH)) for each in (q, k, v))
    look_ahead = 1 - tf.linalg.band_part(tf.ones((LENGTH, LENGTH)), -1, 0)
    scores = tf.matmul(q, k, transpose_b=True) * WIDTH**-0.5 - tf.cast(look_ahead * 1e9, q.dtype)
    return ops.reshape(ops.matmul(layer.dropped(ops.softmax(scores)), v), (BATCH, LENGTH, HEADS, SIZE))


def of_keys_times_queries(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    """As KerasHub's GPT-NeoX: the scores are the product of keys and queries, transposed."""
    scores = ops.einsum("aecd,abcd->acbe", k, q) * SIZE**-0.5
    shares = layer.softmax(scores, mask=np.tri(LENGTH, dtype=bool) & ops.cast(seen, "bool")[:, None, None])
    return ops.einsum("acbe,aecd->abcd", layer.dropped(shares), v)


def by_tensorflows_einsum(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = tf.einsum("...qhd,...khd->...hqk", q, k) * SIZE**-0.5
    shares = layer.dropped(tf.nn.softmax(tf.where(np.tri(LENGTH, dtype=bool), scores, -1e9)))
    return tf.einsum("...hqk,...khd->...qhd", shares, v)


def by_einsums_of_one_head_of_keys(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    """Keys before queries, shares after values, and heads of queries that share the only head of keys."""
    scores = ops.einsum("bkd,bqhd->bhqk", k[:, :, 0], q * SIZE**-0.5)
    shares = layer.softmax(scores, mask=ops.cast(seen, "bool")[:, None, None])
    return ops.einsum("bkd,bhqk->bqhd", v[:, :, 1], layer.dropped(shares))


def of_grouped_heads(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    """As KerasHub's Gemma: two heads of queries for each head of keys."""
    q, k, v = ops.reshape(q, (BATCH, LENGTH, 2, 2, SIZE // 2)), k[..., ::2], v[..., 1::2]
    scores = ops.einsum("btkgh,bskh->bkgts", q * SIZE**-0.5, k)
    lets = np.tri(LENGTH, dtype=bool) & (ops.cast(seen, "bool")[:, None])
    shares = layer.dropped(ops.cast(layer.softmax(scores, mask=lets[:, None, None]), v.dtype))
    return ops.reshape(ops.einsum("bkgts,bskh->btkgh", shares, v), (BATCH, LENGTH, HEADS, SIZE))


def of_grouped_heads_with_alibi(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    q = ops.transpose(ops.reshape(q, (BATCH, LENGTH, 2, 2, SIZE // 2)), (0, 2, 3, 1, 4))
    k, v = (ops.transpose(each, (0, 2, 1, 3))[:, :, None] for each in (k[..., ::2], v[..., 1::2]))
    slopes = np.array([1, 0.5, 0.25, 0.125], np.float32).reshape((2, 2, 1, 1))
    scores = ops.cast(ops.matmul(q, ops.swapaxes(k, -1, -2)), "float32") * SIZE**-0.5
    scores = scores + np.where(np.tri(LENGTH), np.arange(LENGTH) * slopes, -1e9).astype(np.float32)
    made = ops.matmul(layer.dropped(ops.cast(ops.softmax(scores), v.dtype)), v)
    return ops.reshape(ops.transpose(made, (0, 3, 1, 2, 4)), (BATCH, LENGTH, HEADS, SIZE))


def with_a_learned_table(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.einsum("btnh,bsnh->bnts", q, k) + ops.cast(layer.table, q.dtype)
    return ops.einsum("bnts,bsnh->btnh", layer.dropped(ops.softmax(scores)), v)


def over_queries(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return ops.einsum("bnts,bsnh->btnh", ops.softmax(ops.einsum("btnh,bsnh->bnts", q, k), axis=-2), v)


def with_a_mask_that_is_scaled_away(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    scores = ops.where(np.tri(LENGTH, dtype=bool), ops.einsum("btnh,bsnh->bnts", q, k), -1e4) * 1e-4
    return ops.einsum("bnts,bsnh->btnh", layer.dropped(ops.softmax(scores)), v)


def times_halves(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    half = 0.5 * np.tri(LENGTH, dtype=np.float32)
    scores = ops.cast(ops.einsum("btnh,bsnh->bnts", q, k), "float32") * half - 1e9 * (1 - np.tri(LENGTH))
    return ops.einsum("bnts,bsnh->btnh", layer.dropped(ops.cast(ops.softmax(scores), v.dtype)), v)


def by_einsums_over_two_axes(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    place = tf.einsum(
        "i,j->ij", tf.range(LENGTH, dtype=v.dtype), tf.ones([HEADS], v.dtype)
    )  # as rotary angles are made
    v += place[:, :, None]
    shares = tf.nn.softmax(tf.einsum("bthd,bshd->bts", q, k))
    return tf.einsum("bts,bshd->bthd", shares, v) + tf.einsum("bts,bsd->btd", shares, v[:, :, 0])[:, :, None]


def of_shares_set_to_zero_that_low_numbers_take(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    """A query that sees only later keys weighs the numbers that hide them against those that hide the padding."""
    scores = ops.cast(ops.einsum("bqnh,bknh->bnqk", q, k) * SIZE**-0.5, "float32")
    shares = layer.softmax(scores - 1e9 * np.triu(np.ones((LENGTH, LENGTH), np.float32), 1), seen[:, None, None])
    return ops.einsum("bnqk,bknh->bqnh", layer.dropped(ops.cast(shares, v.dtype)), v)


def of_no_product(q: Any, k: Any, v: Any, seen: Any, layer: Any) -> Any:
    return ops.einsum("bnts,bsnh->btnh", ops.softmax(ops.tanh(ops.einsum("btnh,bsnh->bnts", q, k))), v)


class Layer(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, attend: Attend, rate: float, **options: Any) -> None:
        super().__init__(**options)
        self.attend = attend
        kind = self.dtype_policy
        self.three = [keras.layers.EinsumDense("btd,dnh->btnh", (None, HEADS, SIZE), dtype=kind) for _ in range(3)]
        self.dropped = keras.layers.Dropout(rate, seed=1, dtype=kind)
        self.dropped_wide = keras.layers.Dropout(rate, seed=1, dtype="float32")
        self.softmax = keras.layers.Softmax(dtype=kind)

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(HEADS, LENGTH, LENGTH), initializer="random_normal", name="table")

    def call(self, x: Any, seen: Any) -> Any:
        return self.attend(*(each(x) for each in self.three), seen, self)


class Called:
    """The kernels by their definition, and how they were called."""

    def __init__(self) -> None:
        self.causal: list[bool] = []

    def forward(self, operands: list[Any], scale: float, causal: bool) -> list[Any]:
        self.causal.append(causal)
        return [Kernel.forward(operands[:3], operands[3:], scale, causal, cudnn_dropout.Dropout(0.0, _SEED))[0], None]

    def backward(self, operands: list[Any], scale: float, causal: bool) -> list[Any]:
        query, key, value, _, upstream, *bias, _ = operands
        how = bias, scale, causal, cudnn_dropout.Dropout(0.0, _SEED)
        return Kernel.backward([query, key, value, None, upstream, None], *how)

    def dropping(self, operands: list[Any], bias: list[Any], scale: float, causal: bool, dropout: Any) -> list[Any]:
        self.causal.append(causal)
        return Kernel.forward(operands, bias, scale, causal, dropout)


_SEED = np.zeros(1, np.int64)


def defined(monkeypatch: pytest.MonkeyPatch) -> Called:
    """The kernels' definitions in the kernels' place."""
    made = Called()
    monkeypatch.setattr(attention, "forward", made.forward)
    monkeypatch.setattr(attention, "backward", made.backward)
    monkeypatch.setattr(cudnn_dropout, "forward", made.dropping)
    monkeypatch.setattr(cudnn_dropout, "backward", Kernel.backward)
    monkeypatch.setattr(cudnn_dropout, "has_kernel", lambda *given, **how: True)
    return made


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    return defined(monkeypatch)


def trained(attend: Attend, rate: float, policy: str, form: bool, is_left: bool = False) -> list[np.ndarray]:
    """is_left: True if the padding comes first, so that the first queries see nothing."""
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(0)
    layer = Layer(attend, rate, dtype=policy)
    x = tf.constant(random.normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32))
    seen = tf.constant((np.arange(LENGTH) < random.integers(4, LENGTH + 1, (BATCH, 1))).astype(np.int32))
    seen = seen[:, ::-1] if is_left else seen
    layer.build(x.shape)
    for each in layer.three:
        each.build(x.shape)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any, seen: Any) -> Any:
        with ExitStack() as laid, tf.GradientTape() as tape:
            for within in (products.flat, padded_products.multiples, last_axis.rows, hashed.dropout):
                laid.enter_context(within())
            if form:
                laid.enter_context(written.fused())
            tape.watch(x)
            made = layer(x, seen, training=True)
            total = tf.reduce_sum(tf.square(tf.cast(made, tf.float32)))
        return [made, *(g for g in tape.gradient(total, [x, *layer.trainable_variables]) if g is not None)]

    return [np.asarray(tf.cast(each, tf.float32)) for each in run(x, seen)]


TAKEN = {  # and whether by a causal kernel; None: by one with dropout alone
    as_nanogpt: True,
    by_masked_fill: True,
    as_alibi: None,
    with_a_kept_mask: True,
    with_kept_numbers: True,
    with_a_query_that_weighs_low_numbers: False,
    as_tensorflows_tutorial: False,
    by_einsum: False,
    in_float32: False,
    dropped_in_float32: False,
    one_head: True,
    by_tensorflows_einsum: True,
    by_einsums_of_one_head_of_keys: False,
    of_keys_times_queries: True,
    of_grouped_heads: True,
    of_grouped_heads_with_alibi: None,
    as_the_first_gpt2: True,
    scaled_after_the_mask: True,
}
NOT_TAKEN = [
    with_a_learned_table,
    over_queries,
    by_einsums_over_two_axes,
    of_shares_set_to_zero_that_low_numbers_take,
    of_no_product,
    with_a_mask_that_is_scaled_away,
    times_halves,
]
POLICIES = ("mixed_bfloat16", "float32")


# In `make test` each at one of the rates, in turn.
@pytest.mark.parametrize(
    ("attend", "rate"),
    few(((attend, (0.0, 0.25)[(i + j) % 2]) for i, attend in enumerate(TAKEN) for j in range(2)), 2),
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_trains_so_as_it_is_written(attend: Attend, rate: float, called: Called) -> None:
    """By a kernel that leaves out half of the work where the mask is one that does."""
    exact = trained(attend, rate, "float32", form=False)
    fused = trained(attend, rate, "mixed_bfloat16", form=True)
    is_causal = TAKEN[attend]
    assert called.causal == [rate > 0 if is_causal is None else is_causal]
    for mine, theirs in zip(fused, exact, strict=True):
        assert np.linalg.norm(mine - theirs) < 3e-2 * np.linalg.norm(theirs)


# In `make test` each in one of the types, in turn.
@pytest.mark.parametrize(
    ("attend", "policy"),
    few(((attend, POLICIES[(i + j) % 2]) for i, attend in enumerate(NOT_TAKEN) for j in range(2)), 2),
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_no_attention_of_the_kernels_stays_as_it_is(attend: Attend, policy: str, called: Called) -> None:
    near = 1e-5 if policy == "float32" else 2e-2
    for mine, theirs in zip(*(trained(attend, 0.25, policy, form=form) for form in (True, False)), strict=True):
        assert np.linalg.norm(mine - theirs) <= near * np.linalg.norm(theirs)
    assert not called.causal


def test_float32_stays_float32(called: Called) -> None:
    for mine, theirs in zip(*(trained(as_nanogpt, 0.25, "float32", form=form) for form in (True, False)), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * np.abs(theirs).max())
    assert not called.causal


def test_layers_with_equal_biases_hold_them_once(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that holds a bias of 12 heads and 1 024 keys for each of 12 layers has 840 MB."""
    layers, held = [Layer(as_alibi, 0.25, dtype="mixed_bfloat16") for _ in range(3)], []

    def forward(operands: list[Any], bias: list[Any], *how: Any) -> list[Any]:
        held.append(bias[0])
        return Kernel.forward(operands, bias, *how)

    monkeypatch.setattr(cudnn_dropout, "forward", forward)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any, seen: Any) -> Any:
        with products.flat(), hashed.dropout(), written.fused():
            for layer in layers:
                x = ops.reshape(layer(x, seen, training=True), x.shape)
        return x

    shape = BATCH, LENGTH, WIDTH
    for layer in layers:
        layer.build(shape)
    graph = run.get_concrete_function(tf.TensorSpec(shape), tf.TensorSpec((BATCH, LENGTH), tf.int32)).graph
    assert len(held) >= len(layers) and len({each.name for each in held}) == 1
    large = [
        each
        for each in graph.get_operations()
        if each.type == "Const" and each.outputs[0].shape.num_elements() >= HEADS * LENGTH**2
    ]
    assert len(large) == 3  # which scores count, the numbers of the distances, and both as the kernel reads them
