"""Small models of one layer or operation each, trained by plain Keras and by ring as it does on GPUs. usage:
layers_alike.py OUT [PART PARTS]

OUT gets, by case, the largest difference of weights and losses, relative to 1, and what ring said of XLA: of each
PARTS-th case from PART on, counted from 0. Without PART it gets, by case, which layers are in the model, untrained."""

import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring
from tests.harness import as_on_gpus

BATCH, SAMPLES = 4, 16
ring.init(seed=3)
as_on_gpus.begin()
random = np.random.default_rng(0)
Case = tuple[Callable[[], Any], Callable[[Any], Any]]
CASES: dict[str, Case] = {}


def numbers(*shape: int) -> Callable[[], Any]:
    return lambda: random.normal(size=(SAMPLES, *shape)).astype("float32")


def ids(below: int, *shape: int) -> Callable[[], Any]:
    return lambda: random.integers(0, below, (SAMPLES, *shape), np.int32)


series, images, volumes, rows = numbers(6, 5), numbers(8, 8, 4), numbers(4, 4, 4, 2), numbers(5)
OF = {"1D": series, "2D": images, "3D": volumes}


def after_dense(*names: str, **options: Any) -> None:
    for name in names:
        CASES[name] = series, lambda x, name=name: getattr(layers, name)(**options)(layers.Dense(4)(x))


def after_convolution(name: str, *arguments: Any, dims: str = "1D 2D 3D", **options: Any) -> None:
    for dim in dims.split():

        def build(x: Any, dim: str = dim) -> Any:
            x = getattr(layers, f"Conv{dim}")(3, 2)(x)
            return getattr(layers, name + dim)(*arguments, **options)(x)

        CASES[name + dim] = OF[dim], build


for kind, filters in (("Conv", (4,)), ("Separable", (4,)), ("Depthwise", ())):
    for dim in ("1D", "2D", "3D") if kind == "Conv" else ("1D", "2D"):
        name = f"Conv{dim}" if kind == "Conv" else f"{kind}Conv{dim}"
        for said, options in (("", {}), (", strides", {"strides": 2}), (", dilated", {"dilation_rate": 2})):
            if kind == "Depthwise" and options and dim == "1D":
                continue

            def convolved(x: Any, name: str = name, filters: Any = filters, options: Any = options) -> Any:
                return getattr(layers, name)(*filters, 3, padding="same", **options)(x)

            CASES[name + said] = OF[dim], convolved
for dim in OF:
    CASES[f"Conv{dim}Transpose"] = (
        OF[dim],
        lambda x, dim=dim: getattr(layers, f"Conv{dim}Transpose")(4, 3, strides=2, padding="same")(x),
    )
CASES["Conv2D, groups"] = images, lambda x: layers.Conv2D(8, 3, groups=2)(x)
CASES["DepthwiseConv2D, multiplied"] = images, lambda x: layers.DepthwiseConv2D(3, depth_multiplier=2)(x)
CASES["EinsumDense"] = series, lambda x: layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d")(x)

after_convolution("MaxPooling", 2)
after_convolution("AveragePooling", 2)
after_convolution("GlobalMaxPooling")
after_convolution("GlobalAveragePooling")
after_convolution("AdaptiveMaxPooling", 2)
after_convolution("AdaptiveAveragePooling", 2)
after_convolution("Cropping", 1)
after_convolution("UpSampling", 2)
after_convolution("ZeroPadding", 1)
CASES["UpSampling2D, bilinear"] = (
    images,
    lambda x: layers.UpSampling2D(3, interpolation="bilinear")(layers.Conv2D(3, 2)(x)),
)
CASES["Resizing"] = images, lambda x: layers.Resizing(5, 5)(layers.Conv2D(3, 2)(x))
CASES["CenterCrop"] = images, lambda x: layers.CenterCrop(5, 5)(layers.Conv2D(3, 2)(x))

after_dense("BatchNormalization", "LayerNormalization", "RMSNormalization", "UnitNormalization")
after_dense("ELU", "LeakyReLU", "PReLU", "ReLU", "Softmax", "Flatten", "Identity", "Masking")
after_dense("GroupNormalization", groups=2)
after_dense("Permute", dims=(2, 1))
after_dense("Reshape", target_shape=(4, 6))
after_dense("ActivityRegularization", l1=0.1, l2=0.1)
CASES["BatchNormalization, axis 1"] = images, lambda x: layers.BatchNormalization(axis=1)(layers.Conv2D(4, 3)(x))
CASES["SpectralNormalization"] = images, lambda x: layers.SpectralNormalization(layers.Conv2D(4, 3))(x)
ACTIVATIONS = """relu sigmoid softplus softsign tanh selu gelu elu exponential silu hard_sigmoid hard_silu relu6
leaky_relu mish log_softmax celu glu log_sigmoid hard_tanh hard_shrink soft_shrink squareplus tanh_shrink sparse_plus
sparsemax sparse_sigmoid"""
for names in ACTIVATIONS.splitlines():  # side by side: a model for each would take minutes

    def activated(x: Any, names: str = names) -> Any:
        return layers.Concatenate()([layers.Activation(name)(layers.Dense(4)(x)) for name in names.split()])

    CASES[f"Activation, {names}"] = series, activated
for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"):
    CASES[name] = series, lambda x, name=name: getattr(layers, name)()([layers.Dense(3)(x), layers.Dense(3)(x)])
CASES["Dot"] = series, lambda x: layers.Dot(2, normalize=True)([layers.Dense(3)(x), layers.Dense(3)(x)])

for name in ("LSTM", "GRU", "SimpleRNN"):
    kind = getattr(layers, name)
    CASES[name] = series, lambda x, kind=kind: kind(3)(x)
    CASES[f"{name}, unrolled"] = series, lambda x, kind=kind: kind(3, unroll=True)(x)
    CASES[f"{name}, masked"] = series, lambda x, kind=kind: kind(3, return_sequences=True)(layers.Masking()(x))
    CASES[f"{name}, both ways"] = series, lambda x, kind=kind: layers.Bidirectional(kind(3), merge_mode="sum")(x)
CASES["RNN"] = (
    series,
    lambda x: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2), layers.SimpleRNNCell(2)])(x),
)
CASES["ConvLSTM1D"] = numbers(3, 6, 2), lambda x: layers.ConvLSTM1D(3, 3)(x)
CASES["ConvLSTM2D"] = numbers(3, 6, 6, 2), lambda x: layers.ConvLSTM2D(3, 3, return_sequences=True)(x)
CASES["ConvLSTM3D"] = numbers(2, 4, 4, 4, 2), lambda x: layers.ConvLSTM3D(2, 3)(x)
CASES["TimeDistributed"] = numbers(3, 6, 6, 2), lambda x: layers.TimeDistributed(layers.Conv2D(3, 3))(x)

CASES["Attention"] = series, lambda x: layers.Attention(use_scale=True)([layers.Dense(4)(x), layers.Dense(4)(x)])
CASES["AdditiveAttention"] = series, lambda x: layers.AdditiveAttention()([layers.Dense(4)(x), layers.Dense(4)(x)])
CASES["MultiHeadAttention"] = series, lambda x: layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
CASES["MultiHeadAttention, one axis"] = images, lambda x: layers.MultiHeadAttention(2, 4, attention_axes=(1,))(x, x)
CASES["GroupQueryAttention"] = series, lambda x: layers.GroupQueryAttention(4, 4, 2)(x, x)

CASES["Embedding"] = ids(9, 5), lambda x: layers.Embedding(9, 4)(x)
CASES["Embedding, masked"] = ids(9, 5), lambda x: layers.LSTM(3)(layers.Embedding(9, 4, mask_zero=True)(x))


def looked_up_and_back(x: Any) -> Any:
    embedding = layers.ReversibleEmbedding(9, 4)
    return embedding(embedding(x), reverse=True)


CASES["ReversibleEmbedding"] = ids(9, 5), looked_up_and_back
CASES["CategoryEncoding"] = ids(9, 5), lambda x: layers.Dense(3)(layers.CategoryEncoding(9)(x))
CASES["Hashing"] = ids(90, 5), lambda x: layers.Embedding(9, 4)(layers.Hashing(9)(x))
CASES["Hashing, salted"] = ids(90, 5), lambda x: layers.Embedding(9, 4)(layers.Hashing(9, salt=3)(x))
CASES["IntegerLookup"] = (
    ids(9, 5),
    lambda x: layers.Embedding(12, 4)(layers.IntegerLookup(vocabulary=list(range(9)))(x)),
)
CASES["Discretization"] = rows, lambda x: layers.Embedding(9, 4)(layers.Discretization([-1.0, 0.0, 1.0])(x))
CASES["Normalization"] = rows, lambda x: layers.Dense(3)(layers.Normalization(mean=1.0, variance=2.0)(x))
CASES["Rescaling"] = images, lambda x: layers.Conv2D(3, 3)(layers.Rescaling(1 / 2)(x))
CASES["RepeatVector"] = rows, lambda x: layers.RepeatVector(3)(layers.Dense(3)(x))
CASES["Lambda"] = series, lambda x: layers.Lambda(lambda t: t * 2)(layers.Dense(3)(x))
CASES["Dense, constrained"] = (
    series,
    lambda x: layers.Dense(3, kernel_regularizer="l2", kernel_constraint="non_neg")(x),
)
CASES["MelSpectrogram"] = (
    numbers(512),
    lambda x: layers.Dense(2)(layers.MelSpectrogram(64, 32, num_mel_bins=8, sampling_rate=1000)(x)),
)
CASES["STFTSpectrogram"] = (
    numbers(512, 1),
    lambda x: layers.Dense(2)(layers.STFTSpectrogram(frame_length=64, trainable=False)(x)),
)

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "cumsum": lambda x: ops.cumsum(x, axis=1),
    "sort": lambda x: ops.sort(x, axis=1),
    "top_k": lambda x: ops.top_k(x, 2)[0],
    "rfft": lambda x: ops.rfft(x)[0],
    "segment_sum": lambda x: ops.segment_sum(ops.reshape(x, (-1, 4)), ops.arange(24) // 3, num_segments=8),
    "svd": lambda x: ops.svd(x, full_matrices=False)[1],
    "solve": lambda x: ops.solve(ops.matmul(ops.transpose(x, (0, 2, 1)), x) + ops.eye(4), x[:, :4]),
    "while_loop": lambda x: ops.while_loop(
        lambda n, v: n < 3, lambda n, v: (n + 1, ops.tanh(v)), (0, x), maximum_iterations=3
    )[1],
    "cond": lambda x: ops.cond(ops.sum(x) > 0, lambda: x * 2, lambda: x * 3),
    "scan": lambda x: ops.scan(lambda c, r: (c + r, c * r), ops.zeros_like(x[0]), x)[1],
    "vectorized_map": lambda x: ops.vectorized_map(lambda row: row * ops.mean(row), x),
    "einsum": lambda x: ops.einsum("bij,bkj->bik", x, x),
    "take_along_axis": lambda x: ops.take_along_axis(x, ops.argsort(x, axis=1), axis=1),
    "logsumexp": lambda x: ops.logsumexp(ops.erf(x), axis=-1),
    "median": lambda x: ops.median(x, axis=1),
    "where": lambda x: ops.where(x > 0, x, ops.zeros_like(x)),
}
for name, operation in OPERATIONS.items():
    CASES[f"ops.{name}"] = (
        series,
        lambda x, operation=operation: layers.Lambda(operation, output_shape=lambda shape: shape)(layers.Dense(4)(x)),
    )


def made(case: str, x: Any) -> keras.Model:
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    inputs = keras.Input(x.shape[1:], BATCH, dtype=str(x.dtype))
    outputs = ops.reshape(CASES[case][1](inputs), (BATCH, -1))
    return keras.Model(inputs, ops.mean(outputs, axis=1, keepdims=True))


def trained(case: str, x: Any, y: Any, *, by_ring: bool) -> list[Any]:
    model = made(case, x)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", jit_compile=False)
    if by_ring:
        ring.distribute(model)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    return [*(np.asarray(w, float) for w in model.weights), np.asarray(history.history["loss"])]


def compared(case: str) -> dict[str, Any]:
    global random
    random = np.random.default_rng(1)
    x, y = CASES[case][0](), random.normal(size=(SAMPLES, 1)).astype("float32")
    own = trained(case, x, y, by_ring=False)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        mine = trained(case, x, y, by_ring=True)
    apart = [np.max(np.abs(a - b) / np.maximum(1, np.abs(a)), initial=0) for a, b in zip(own, mine, strict=True)]
    refused = [line for line in said.getvalue().splitlines() if "without XLA" in line]
    return {"apart": float(np.max(apart)), "refused": refused}


def inside(case: str) -> list[str]:
    return sorted({type(layer).__name__ for layer in made(case, CASES[case][0]())._flatten_layers(include_self=False)})


out, *part = sys.argv[1:]
if part:
    first, count = map(int, part)
    found: dict[str, Any] = {case: compared(case) for case in list(CASES)[first::count]}
else:
    found = {case: inside(case) for case in CASES}
Path(out).write_text(json.dumps(found))
