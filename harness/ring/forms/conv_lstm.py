"""ConvLSTM layers as one loop there and one back.

In a step Keras convolves inputs and state once for each of four gates, and on the way back takes the gradients of all
eight kernels, of which XLA launches each from the host. Here the inputs of all steps are convolved before the loop, by
all gates' kernels at once; a step convolves the state once, and once on its way back; one convolution after that gives
the gradient of the recurrent kernel. Gates and cell states are float32 inside the loop whatever a layer computes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..exchange import tf
from .narrow import wide_type
from .turns import at, loop, put, room


def fits(layer: Any) -> bool:
    """Whether the loop computes it: one that drops nothing, whatever it is activated by, its strides and dilation."""
    from keras import layers
    from keras.src.layers.rnn.conv_lstm import ConvLSTMCell

    kinds = (layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D)
    return (
        isinstance(layer, kinds)
        and type(layer).inner_loop is layers.RNN.inner_loop
        and type(layer.cell) is ConvLSTMCell
        and layer.cell.data_format == "channels_last"
        and not (layer.dropout or layer.recurrent_dropout or layer.unroll or layer.stateful)
    )


def inner_loop(
    layer: Any, otherwise: Callable[..., Any], sequences: Any, initial_state: Any, mask: Any, training: bool = False
) -> tuple[Any, Any, list[Any]]:
    """A layer's (last output, outputs (batch, steps, *places, filters), last states), as its own `inner_loop` has them.

    sequences: (batch, steps, *places, channels). A mask is left to the layer's own.
    """
    from keras import tree

    cell, start = layer.cell, tree.flatten(initial_state)
    kernel, recurrent = tf.convert_to_tensor(cell.kernel), tf.convert_to_tensor(cell.recurrent_kernel)
    known = all(each.shape.is_fully_defined() for each in (sequences, *start)) and sequences.shape[1] > 0
    alike = all(each.dtype == kernel.dtype for each in (sequences, *start))
    if not (known and alike) or any(each is not None for each in tree.flatten(mask)):
        return otherwise(sequences, initial_state, mask, training)  # type: ignore[no-any-return]
    x = _steps_first(sequences)
    if layer.go_backwards:
        x = tf.reverse(x, [0])
    products = cell.input_conv(_flat(x), kernel, padding=cell.padding)
    if cell.use_bias:
        products += tf.convert_to_tensor(cell.bias)
    products = tf.reshape(products, [x.shape[0], x.shape[1], *products.shape[1:]])
    states, *last = conv_lstm(cell, products, start[0], start[1], recurrent)
    return last[0], _steps_first(states), last


def _steps_first(sequences: Any) -> Any:
    """With the first two axes in the place of each other."""
    return tf.transpose(sequences, [1, 0, *range(2, sequences.shape.rank)])


def _flat(stack: Any) -> Any:
    """(steps, batch, ...) as (steps batch, ...), as a convolution takes it."""
    return tf.reshape(stack, [-1, *stack.shape[2:]])


def conv_lstm(cell: Any, products: Any, start: Any, start_cell: Any, recurrent: Any) -> Any:
    """(states (steps, batch, *places, filters), the last one, the last cell state).

    products: (steps, batch, *places, 4 filters), of the inputs, with the bias. start, start_cell: (batch, *places,
    filters). recurrent: (*window, filters, 4 filters).
    """
    kind, wide = products.dtype, wide_type(products.dtype)
    steps = products.shape[0]

    def moved(sums: Any, before: Any) -> tuple[Any, Any]:
        """(next cell state, output)"""
        enter, keep, new, show = tf.split(sums, 4, axis=-1)
        enter, keep, show = map(cell.recurrent_activation, (enter, keep, show))
        after = keep * before + enter * cell.activation(new)
        return after, show * cell.activation(after)

    @tf.custom_gradient
    def run(products: Any, start: Any, start_cell: Any, recurrent: Any) -> Any:
        def step(t: Any, wide_cell: Any, state: Any, cells: Any, states: Any, kept: Any) -> tuple[Any, ...]:
            sums = tf.cast(at(kept, t), wide) + tf.cast(cell.recurrent_conv(state, recurrent), wide)
            wide_cell, output = moved(sums, wide_cell)
            state = tf.cast(output, kind)
            every = ((cells, wide_cell), (states, state), (kept, sums))
            return wide_cell, state, *(put(stack, t, tf.cast(each, kind)) for stack, each in every)

        empty = (room([steps, *start.shape], kind) for _ in range(2))
        # The sums take the place of the products that they are made of: the largest stack is there once.
        last_cell, last, cells, states, kept = loop(
            step, range(steps), (tf.cast(start_cell, wide), start, *empty, products)
        )

        def gradient(d_states: Any, d_last: Any, d_last_cell: Any) -> tuple[Any, ...]:
            before = tf.concat([start[tf.newaxis], states[:-1]], axis=0)
            cells_before = tf.concat([start_cell[tf.newaxis], cells[:-1]], axis=0)

            def step(t: Any, d_cell: Any, d_state: Any, parts: Any) -> tuple[Any, ...]:
                d_state += tf.cast(at(d_states, t), wide)
                given = tf.cast(at(kept, t), wide), tf.cast(at(cells_before, t), wide)
                d_sums, d_cell = _gradients(moved, given, (d_cell, d_state))
                part = tf.cast(d_sums, kind)
                (d_state,) = _gradients(lambda state: cell.recurrent_conv(state, recurrent), (at(before, t),), part)
                return d_cell, tf.cast(d_state, wide), put(parts, t, part)

            begin = (tf.cast(d_last_cell, wide), tf.cast(d_last, wide), room(kept.shape, kind))
            d_cell, d_state, parts = loop(step, range(steps - 1, -1, -1), begin)
            (d_recurrent,) = _gradients(
                lambda kernel: cell.recurrent_conv(_flat(before), kernel), (recurrent,), _flat(parts)
            )
            return parts, tf.cast(d_state, kind), tf.cast(d_cell, kind), d_recurrent

        return (states, last, tf.cast(last_cell, kind)), gradient

    return run(products, start, start_cell, recurrent)


def _gradients(function: Callable[..., Any], given: tuple[Any, ...], upstream: Any) -> list[Any]:
    """Those of `function(*given)` by each of what is given."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(given)
        result = function(*given)
    return list(tape.gradient(result, given, output_gradients=upstream))
