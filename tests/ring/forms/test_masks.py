"""Attention whose masks are not spread over batch and heads: Keras's own numbers, and a graph no larger for a larger
batch."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


from ringscope.ring.forms import masks  # noqa: E402
from ringscope.ring.internals.frameworks import backend_ops  # noqa: E402

BATCH, LENGTH, HEADS = 3, 6, 2


def _mask(kind: str) -> Any:
    random = np.random.default_rng(1)
    if kind == "padding":
        lengths = np.array([LENGTH, 2, 0])  # the last sample sees nothing
        return (np.arange(LENGTH) < lengths[:, None])[:, None, None, :]
    if kind == "every":
        return random.random((BATCH, HEADS, LENGTH, LENGTH)) < 0.6
    return None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "every"])
def test_scores_and_gradients_are_kerass_bit_for_bit(kind: str, causal: bool, dtype: str) -> None:
    random = np.random.default_rng(0)
    query, key, value = (tf.cast(tf.constant(random.normal(size=(BATCH, LENGTH, HEADS, 4))), dtype) for _ in range(3))
    given = _mask(kind)

    def run() -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            out = keras.ops.dot_product_attention(query, key, value, mask=given, is_causal=causal)
            loss = tf.reduce_sum(tf.cast(out, tf.float32) ** 2)
        return [out, *tape.gradient(loss, [query, key, value])]

    own = run()
    with masks.unspread():
        unspread = run()
    for one, other in zip(own, unspread, strict=True):
        np.testing.assert_array_equal(tf.cast(one, tf.float32), tf.cast(other, tf.float32))


def test_kerass_own_is_back_afterwards() -> None:
    before = backend_ops.nn._apply_masks
    with pytest.raises(ZeroDivisionError), masks.unspread(), masks.unspread():
        assert backend_ops.nn._apply_masks is not before
        raise ZeroDivisionError
    assert backend_ops.nn._apply_masks is before


def _optimized_bytes(batch: int) -> int:
    """Of the graph of a step of `ring`'s loop, for batches of this size, after TensorFlow's passes."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import tf_optimizer
    from tensorflow.python.training import saver

    from ringscope.ring.fit.loop import Loop

    layer = keras.layers.MultiHeadAttention(HEADS, 4)
    inputs = keras.Input((LENGTH * 10, 8))
    model = keras.Model(inputs, layer(inputs, inputs, use_causal_mask=True))
    step = Loop(model, lambda: model)._whole(None, tf.TensorSpec((batch, LENGTH * 10, 8)))
    traced = step.function.get_concrete_function()  # type: ignore[attr-defined]
    meta_graph = saver.export_meta_graph(graph_def=traced.graph.as_graph_def(add_shapes=True), graph=traced.graph)
    meta_graph.collection_def["train_op"].node_list.value.extend(out.name for out in traced.outputs)
    return int(tf_optimizer.OptimizeGraph(config_pb2.ConfigProto(), meta_graph).ByteSize())


def test_the_graph_of_a_step_does_not_grow_with_the_batch() -> None:
    small, large = _optimized_bytes(2), _optimized_bytes(64)
    scores = (LENGTH * 10) ** 2  # one byte of a mask each
    assert large - small < scores, (small, large)
    with pytest.MonkeyPatch.context() as patch:  # what is avoided, by the same measure
        patch.setattr(masks, "unspread", nullcontext)
        spread = _optimized_bytes(64)
    assert spread - large > 64 * HEADS * scores * 0.9
