"""Keras layers in forms for which XLA makes fewer and faster GPU kernels, with equal numbers up to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from . import attention, attention_axes, attention_dropout, normalization, products
from .choice import wanted
from .rnn import conv_lstm
from .rnn import layers as recurrent

NARROW_CHANNELS = 4  # with this few input channels (images have 3), most of a tensor core's tile stays empty
TILE_CHANNELS = 8  # tensor cores take 16-bit channels in multiples of 8 (NVIDIA's deep learning performance guide)


@contextmanager
def forms(model: Any) -> Iterator[None]:
    """Within this context, calls of the model's layers are traced in these forms; the model itself is not changed."""
    every = list(model._flatten_layers(include_self=False))
    attended, normalized = _attended(every), normalization.Normalized()
    with ExitStack() as laid:
        for layer in every:
            name, method = _form(layer, id(layer) in attended, normalized) or ("", None)
            if name and _is_kerass(layer, name):
                laid.enter_context(laid_over(layer, **{name: method}))
        yield


def _is_kerass(layer: Any, name: str) -> bool:
    """True if the method is Keras's own: neither the layer's class nor a script has replaced it."""
    of_class = next(kind for kind in type(layer).__mro__ if name in vars(kind))
    return name not in vars(layer) and of_class.__module__.startswith("keras.")


def _attended(every: list[Any]) -> set[int]:
    """Ids of the layers whose outputs are inputs of the attention kernel."""
    names = ("_query_dense", "_key_dense", "_value_dense")
    return {id(getattr(layer, name, None)) for layer in attention.among(every) for name in names}


def _form(layer: Any, attended: bool, normalized: normalization.Normalized) -> tuple[str, Callable[..., Any]] | None:
    """The form's name and the method that replaces a layer's own; None if the layer's own is as good or must stay."""
    from keras import layers

    if normalization.fits(layer):
        return "call", partial(normalized, layer, layer.call)
    if isinstance(layer, layers.Conv2D) and layer.built and _is_narrow(layer):
        return "convolution_op", partial(folded_convolution, layer, layer.convolution_op)
    if isinstance(layer, layers.MaxPooling2D) and layer.data_format == "channels_last" and max(layer.pool_size) <= 3:
        return "call", partial(max_pooling, layer, layer.call)
    if attended and products.folds(layer):
        return "call", partial(products.with_bias, layer, layer.call)
    if _is_tied(layer):
        return "call", partial(head_in_its_type, layer, layer.call)
    if attention_axes.has_others(layer):
        return "_compute_attention", partial(attention_axes.folded, layer, layer._compute_attention)
    if attention_dropout.drops(layer) and wanted("attention_dropout"):
        return "_compute_attention", partial(attention_dropout.dropped, layer, layer._compute_attention)
    if recurrent.fits(layer):
        return "inner_loop", partial(recurrent.inner_loop, layer, layer.inner_loop)
    if conv_lstm.fits(layer):
        return "inner_loop", partial(conv_lstm.inner_loop, layer, layer.inner_loop)
    return None


def _is_narrow(layer: Any) -> bool:
    return (
        layer.kernel.shape[-2] <= NARROW_CHANNELS
        and layer.groups == 1
        and layer.data_format == "channels_last"
        and layer.strides[0] == layer.strides[1] > 1
        and tuple(layer.dilation_rate) == (1, 1)
        and layer.padding in ("valid", "same")
    )


def _is_tied(layer: Any) -> bool:
    """True for an embedding that also makes logits, if it computes in a narrower type than its table's and names no
    type for the logits."""
    from keras import layers

    return (
        isinstance(layer, layers.ReversibleEmbedding)
        and type(layer).call is layers.ReversibleEmbedding.call
        and layer.reverse_dtype is None
        and layer.quantization_mode is None
        and layer.compute_dtype != layer.variable_dtype
    )


def head_in_its_type(layer: Any, otherwise: Callable[..., Any], inputs: Any, reverse: bool = False) -> Any:
    """Logits in the layer's compute type, as `compute_output_spec` promises, and as Keras on JAX computes them.

    On TensorFlow an embedding of a mixed-precision model reads its table as float32, so its logits are float32: 2.1 GB
    instead of 1.05 GB in a decoder's step, written once and read three times.
    """
    if not reverse:
        return otherwise(inputs)
    from keras.src.backend.common.variables import AutocastScope

    with AutocastScope(layer.compute_dtype):
        return otherwise(inputs, reverse=True)


def folded_convolution(layer: Any, otherwise: Callable[..., Any], inputs: Any, kernel: Any) -> Any:
    """A convolution of stride s over few channels as one of stride 1 over s*s times the channels: blocks of s*s pixels
    become channels, in the kernel, too (with zeros where it does not fill its last block).

    A ResNet's first convolution, 7x7 of stride 2 over 3 channels, takes cuDNN 1.7 ms of a 37 ms step on an H200, and
    0.6 ms in this form.
    """
    height, width, channels = inputs.shape[1:]
    if None in (height, width):
        return otherwise(inputs, kernel)
    stride, padding = layer.strides[0], layer.padding
    kernel = tf.convert_to_tensor(kernel)
    rows, columns, _, filters = kernel.shape
    below, right = -rows % stride, -columns % stride  # rows and columns that are missing in the kernel's last blocks
    (top, tall), (left, wide) = _reach(height, rows, stride, padding), _reach(width, columns, stride, padding)
    blocks = tf.nn.space_to_depth(_fitted(inputs, (top, tall + below), (left, wide + right), 0), stride)

    kernel = tf.pad(kernel, [[0, below], [0, right], [0, 0], [0, 0]])
    deep, broad = kernel.shape[0] // stride, kernel.shape[1] // stride
    kernel = tf.transpose(tf.reshape(kernel, [deep, stride, broad, stride, channels, filters]), [0, 2, 1, 3, 4, 5])
    kernel = tf.reshape(kernel, [deep, broad, stride * stride * channels, filters])

    missing = -(stride * stride * channels) % TILE_CHANNELS
    blocks = tf.pad(blocks, [[0, 0], [0, 0], [0, 0], [0, missing]])
    return tf.nn.conv2d(blocks, tf.pad(kernel, [[0, 0], [0, 0], [0, missing], [0, 0]]), 1, "VALID")


def _reach(size: int, window: int, stride: int, padding: str) -> tuple[int, int]:
    """(pixels added before, total pixels that the windows cover) along one dimension, padded as TensorFlow does:
    https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2"""
    if padding == "valid":
        return 0, (size - window) // stride * stride + window
    reach = (-(-size // stride) - 1) * stride + window
    return max(reach - size, 0) // 2, reach


def _fitted(inputs: Any, rows: tuple[int, int], columns: tuple[int, int], value: Any) -> Any:
    """The inputs, padded with `value` or cropped at the end. rows, columns: (pixels added before, total pixels)."""
    height, width = inputs.shape[1:3]
    (top, tall), (left, wide) = rows, columns
    around = [[0, 0], [top, max(tall - top - height, 0)], [left, max(wide - left - width, 0)], [0, 0]]
    return tf.pad(inputs, around, constant_values=value)[:, :tall, :wide]


def max_pooling(layer: Any, otherwise: Callable[..., Any], inputs: Any) -> Any:
    """Max pooling that keeps the position of each window's largest pixel (the first of equals, as in TensorFlow) and
    sends the gradient there by shifts. XLA's own backward pass ends in a scatter: 2.1 ms of a ResNet-50's step on an
    H200, against 1.1 ms here."""
    if None in inputs.shape[1:]:
        return otherwise(inputs)
    pools, strides = tuple(layer.pool_size), tuple(layer.strides)
    rows, columns = (
        _reach(*dimension, layer.padding) for dimension in zip(inputs.shape[1:3], pools, strides, strict=True)
    )
    return _largest(pools, strides)(_fitted(inputs, rows, columns, inputs.dtype.min))


def _windows(inputs: Any, pools: tuple[int, int], strides: tuple[int, int]) -> list[Any]:
    """For each position in a window, row by row: the pixels there, (batch, windows down, windows across, channels)."""
    last = [size - pool for size, pool in zip(inputs.shape[1:3], pools, strict=True)]
    return [
        inputs[:, row : row + last[0] + 1 : strides[0], column : column + last[1] + 1 : strides[1]]
        for row in range(pools[0])
        for column in range(pools[1])
    ]


def _largest(pools: tuple[int, int], strides: tuple[int, int]) -> Callable[[Any], Any]:
    """A function that gives the largest pixel of each window of an image batch (batch, rows, columns, channels), whose
    rows and columns end with a window."""

    @tf.custom_gradient
    def largest(inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        windows = _windows(inputs, pools, strides)
        most = reduce(tf.maximum, windows)
        which = tf.zeros_like(most, tf.uint8)
        for place, pixels in reversed(list(enumerate(windows))):
            which = tf.where(pixels == most, tf.constant(place, tf.uint8), which)
        return most, lambda upstream: _sent_back(upstream, which, inputs.shape, pools, strides)

    return largest  # type: ignore[no-any-return]


def _sent_back(upstream: Any, which: Any, shape: Any, pools: tuple[int, int], strides: tuple[int, int]) -> Any:
    """The gradient with respect to the pixels, in shape `shape`: each window's gradient goes to its pixel number
    `which`. A pixel of several windows gets the sum."""
    windows = upstream.shape[1:3]
    blocks = [-(-size // stride) for size, stride in zip(shape[1:3], strides, strict=True)]
    parts: dict[tuple[int, int], list[Any]] = {
        (row, column): [] for row in range(strides[0]) for column in range(strides[1])
    }
    for place in range(pools[0] * pools[1]):
        (down, row), (across, column) = divmod(place // pools[1], strides[0]), divmod(place % pools[1], strides[1])
        taken = tf.where(which == tf.constant(place, tf.uint8), upstream, tf.zeros_like(upstream))
        below, right = blocks[0] - down - windows[0], blocks[1] - across - windows[1]
        parts[row, column].append(tf.pad(taken, [[0, 0], [down, below], [across, right], [0, 0]]))
    empty = tf.zeros([tf.shape(upstream)[0], *blocks, shape[3]], upstream.dtype)
    every = [tf.add_n(part) if part else empty for part in parts.values()]
    # (batch, block rows, block columns, rows of a block, columns of a block, channels) -> (batch, rows, columns,
    # channels)
    stacked = tf.reshape(tf.stack(every, axis=3), [-1, *blocks, *strides, shape[3]])
    placed = tf.transpose(stacked, [0, 1, 3, 2, 4, 5])
    placed = tf.reshape(placed, [-1, blocks[0] * strides[0], blocks[1] * strides[1], shape[3]])
    return placed[:, : shape[1], : shape[2]]
