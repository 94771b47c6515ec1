"""ConvLSTM layers as one forward loop and one backward loop.

In each step Keras convolves inputs and state separately for four gates, and the backward pass computes the gradients of
all eight kernels; the host launches each. Here the inputs of all steps are convolved before the loop, for all gates at
once. A step convolves the state once, forward and backward, and one convolution afterwards gives the recurrent kernel's
gradient. Gates and cell states are float32 inside the loop, whatever the layer's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...internals.frameworks import tf
from .layers import is_activated_by_keras, is_known, weights_of
from .loop import gradients, steps_first
from .lstm import lstm


def fits(layer: Any) -> bool:
    """True if the loop can compute this layer: it must have no dropout. Activations, strides and dilation may be
    any."""
    from keras import layers
    from keras.src.layers.rnn.conv_lstm import ConvLSTMCell

    kinds = (layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D)
    return (
        isinstance(layer, kinds)
        and type(layer).inner_loop is layers.RNN.inner_loop
        and type(layer.cell) is ConvLSTMCell
        and is_activated_by_keras(layer.cell)
        and layer.cell.data_format == "channels_last"
        and not (layer.dropout or layer.recurrent_dropout or layer.unroll or layer.stateful)
    )


def inner_loop(
    layer: Any, otherwise: Callable[..., Any], sequences: Any, initial_state: Any, mask: Any, training: bool = False
) -> tuple[Any, Any, list[Any]]:
    """Replaces a layer's `inner_loop`. Returns (last output, outputs (batch, steps, *places, filters), last states).
    sequences: (batch, steps, *places, channels). With a mask the layer's own loop runs."""
    from keras import tree

    cell, start = layer.cell, tree.flatten(initial_state)
    kernel, recurrent, bias = weights_of(cell)
    if not is_known(kernel, sequences, start) or any(each is not None for each in tree.flatten(mask)):
        return otherwise(sequences, initial_state, mask, training)  # type: ignore[no-any-return]
    x = steps_first(sequences)
    if layer.go_backwards:
        x = tf.reverse(x, [0])
    products = cell.input_conv(_flat(x), kernel, padding=cell.padding)
    products = tf.reshape(products, [*x.shape[:2], *products.shape[1:]])
    states, *last = lstm(cell, Convolved(cell), products, start[0], start[1], recurrent, bias, None)
    return last[0], steps_first(states), last


def _flat(stack: Any) -> Any:
    """(steps, batch, ...) as (steps * batch, ...), for a convolution."""
    return tf.reshape(stack, [-1, *stack.shape[2:]])


class Convolved:
    """The recurrent product of a ConvLSTM: (batch, *places, filters) convolved by (*window, filters, gates)."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def there(self, state: Any, recurrent: Any) -> Any:
        return self._cell.recurrent_conv(state, recurrent)

    def back(self, part: Any, recurrent: Any) -> Any:
        # the gradient is the same at every state, because a convolution is linear
        state = tf.zeros([*part.shape[:-1], recurrent.shape[-2]], part.dtype)
        return gradients(lambda state: self.there(state, recurrent), [state], part)[0]

    def summed(self, states: Any, parts: Any) -> Any:
        kernel = tf.zeros([*self._cell.kernel_size, states.shape[-1], parts.shape[-1]], states.dtype)
        return gradients(lambda kernel: self.there(_flat(states), kernel), [kernel], _flat(parts))[0]
