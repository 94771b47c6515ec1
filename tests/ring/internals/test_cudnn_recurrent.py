"""cuDNN's recurrent kernels in bfloat16: what their calls compute in; on a GPU their gradients beside the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.internals import cudnn_recurrent  # noqa: E402


@pytest.fixture(autouse=True)
def laid() -> Any:
    own = tf.raw_ops.CudnnRNNV3
    cudnn_recurrent.compute_in_float32()
    yield
    tf.raw_ops.CudnnRNNV3 = own


@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
def test_bfloat16_alone_is_computed_in_float32_both_ways(kind: str, mode: str) -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def step(inputs: Any, state: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            found = tf.raw_ops.CudnnRNNV3(
                input=inputs,
                input_h=state,
                input_c=state if mode == "lstm" else 0,
                params=weights,
                is_training=True,
                rnn_mode=mode,
                sequence_lengths=tf.constant([4, 4]),
                time_major=False,
            )
        assert found.output.dtype == found.output_h.dtype == found.output_c.dtype == kind
        return found.output, tape.gradient(found.output, weights)

    shapes = (2, 4, 3), (2, 1, 5), (200,)
    traced = step.get_concrete_function(*(tf.TensorSpec(shape, kind) for shape in shapes))
    types = {each.type: each.get_attr("T") for each in traced.graph.get_operations() if "Cudnn" in each.type}
    wide = tf.as_dtype("float32" if kind == "bfloat16" else kind)
    assert types == {"CudnnRNNV3": wide, "CudnnRNNBackpropV3": wide}
    assert [each.dtype.name for each in traced.outputs] == [kind, kind]


@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="cuDNN's kernels run on a GPU")
@pytest.mark.parametrize("mode", ["LSTM", "GRU"])
def test_an_lstm_and_a_gru_in_bfloat16_have_the_gradients_of_a_cpu(mode: str) -> None:
    inputs = np.random.default_rng(0).standard_normal((8, 16, 32)).astype("float32")

    def of(place: str, policy: str, cudnn: Any) -> list[Any]:
        keras.utils.set_random_seed(0)
        layer = getattr(keras.layers, mode)(24, return_sequences=True, use_cudnn=cudnn, dtype=policy)
        layer.build(inputs.shape)

        @tf.function  # type: ignore[untyped-decorator]
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.cast(layer(x), "float32") ** 2)
            return loss, *tape.gradient(loss, [each.value for each in layer.trainable_variables])

        with tf.device(place):
            return [np.asarray(each) for each in step(inputs)]

    wanted = of("/CPU:0", "float32", False)
    for found, right in zip(of("/GPU:0", "mixed_bfloat16", "auto"), wanted, strict=True):
        np.testing.assert_allclose(found, right, atol=0.05 * np.abs(right).max())
