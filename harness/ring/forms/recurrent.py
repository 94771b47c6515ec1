"""GRU and LSTM layers as one loop there and one back, in the place of cuDNN's kernels, which XLA cannot compile.

The inputs of all steps are multiplied by the kernel at once, before the loop; a step is the product with the state, the
bias and the gates. It keeps the sums that its gates are computed from for the way back, which goes through them and the
states; one product after that gives the gradient of the recurrent kernel, summed over the steps in float32. Gates and
states are float32 inside the loop whatever a layer computes in; sums and states are rounded where they are kept (gates
would lose more: one near 1 has all its gradient in its distance from 1). So in bfloat16 the numbers are nearer to exact
ones than those of Keras's own loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..exchange import tf
from .narrow import NARROW, wide_type
from .turns import at, loop, put, room


def runs_in_cudnn(layer: Any) -> bool:
    """Whether this GRU or LSTM takes cuDNN's kernel outside of a compiled step."""
    from keras.src import backend

    cell = layer.cell
    options = {"reset_after": cell.reset_after} if hasattr(cell, "reset_after") else {}
    return (
        layer.use_cudnn in ("auto", True)
        and not layer.recurrent_dropout
        and backend.cudnn_ok(cell.activation, cell.recurrent_activation, layer.unroll, cell.use_bias, **options)
    )


def fits(layer: Any) -> bool:
    """Whether it is a GRU or an LSTM that the loop computes: as they are made without options, whatever is masked,
    returned, reversed or dropped of its inputs."""
    from keras import activations, layers

    kinds = {layers.GRUCell: layers.GRU, layers.LSTMCell: layers.LSTM}
    cell: Any = getattr(layer, "cell", None)
    kind = kinds.get(type(cell))
    return (
        kind is not None
        and isinstance(layer, kind)
        and type(layer).inner_loop is kind.inner_loop
        and cell.activation is activations.tanh
        and cell.recurrent_activation is activations.sigmoid
        and cell.use_bias
        and getattr(cell, "reset_after", True)
        and not (layer.recurrent_dropout or layer.unroll or layer.stateful)
        and (not layer.dropout or cell.implementation == 2)
    )


def inner_loop(
    layer: Any, otherwise: Callable[..., Any], sequences: Any, initial_state: Any, mask: Any, training: bool = False
) -> tuple[Any, Any, list[Any]]:
    """A layer's (last output, outputs (batch, steps, units), last states), as its own `inner_loop` gives them.

    sequences: (batch, steps, inputs). mask: (batch, steps) or None.
    """
    from keras import tree

    cell, start = layer.cell, tree.flatten(initial_state)
    mask = next(iter(tree.flatten(mask)), None)
    kernel, recurrent, bias = (tf.convert_to_tensor(each) for each in (cell.kernel, cell.recurrent_kernel, cell.bias))
    known = all(each.shape.is_fully_defined() for each in (sequences, *start)) and sequences.shape[1] > 0
    alike = all(each.dtype == kernel.dtype for each in (sequences, *start))
    if not (known and alike and (mask is None or mask.shape.rank == 2)):
        return otherwise(sequences, initial_state, mask, training)  # type: ignore[no-any-return]
    if training and layer.dropout:
        sequences *= cell.get_dropout_mask(sequences[:, 0, :])[:, tf.newaxis]
    x = tf.transpose(sequences, [1, 0, 2])
    counts = None if mask is None else tf.transpose(tf.cast(mask, tf.bool))[..., tf.newaxis]
    if layer.go_backwards:
        x, counts = tf.reverse(x, [0]), None if counts is None else tf.reverse(counts, [0])
    steps, batch, inputs = x.shape
    products = tf.reshape(tf.matmul(tf.reshape(x, [-1, inputs]), kernel), [steps, batch, -1])
    if len(start) == 1:
        states, *last = gru(products, start[0], recurrent, bias, counts)
    else:
        states, *last = lstm(products, start[0], start[1], recurrent, bias, counts)
    return _as_keras_gives(layer, states, last, counts)


def _as_keras_gives(layer: Any, states: Any, last: list[Any], counts: Any) -> tuple[Any, Any, list[Any]]:
    """With what a masked step puts out: the output before it; zeros of cuDNN and with `zero_output_for_mask`."""
    output = last[0]
    if counts is not None:
        zeros = layer.zero_output_for_mask or runs_in_cudnn(layer)
        shown = counts if zeros else tf.cumsum(tf.cast(counts, tf.int32)) > 0
        states = tf.where(shown, states, tf.zeros_like(states))
        output = output if runs_in_cudnn(layer) else states[-1]
    return output, tf.transpose(states, [1, 0, 2]), last


def gru(products: Any, start: Any, recurrent: Any, bias: Any, counts: Any) -> Any:
    """(states (steps, batch, units), the last one), the gates of the reset applied after the recurrent product.

    products: (steps, batch, 3 units), of the inputs. start: (batch, units). recurrent: (units, 3 units). bias: (2,
    3 units), of the products of the inputs and of the states. counts: (steps, batch, 1), false where a step is masked.
    """
    kind, wide = products.dtype, wide_type(products.dtype)
    steps, (batch, units) = products.shape[0], start.shape

    def sums(product: Any, inner: Any, bias: Any) -> tuple[Any, ...]:
        own, inner = (
            tf.split(tf.cast(each, wide) + tf.cast(of_it, wide), 3, axis=1)
            for each, of_it in ((product, bias[0]), (inner, bias[1]))
        )
        return own[0] + inner[0], own[1] + inner[1], own[2], inner[2]

    def gates(update: Any, reset: Any, new: Any, inner: Any) -> tuple[Any, ...]:
        reset = tf.sigmoid(reset)
        return tf.sigmoid(update), reset, tf.tanh(new + reset * inner), inner

    @tf.custom_gradient
    def run(products: Any, start: Any, recurrent: Any, bias: Any) -> Any:
        def step(t: Any, wide_state: Any, state: Any, states: Any, kept: Any) -> tuple[Any, ...]:
            keep = sums(at(products, t), tf.matmul(state, recurrent), bias)
            update, _, new, _ = gates(*keep)
            wide_state = _where(counts, t, update * wide_state + (1 - update) * new, wide_state)
            state = tf.cast(wide_state, kind)
            return wide_state, state, put(states, t, state), put(kept, t, tf.cast(tf.concat(keep, axis=1), kind))

        empty = (room([steps, batch, n * units], kind) for n in (1, 4))
        _, last, states, kept = loop(step, range(steps), (tf.cast(start, wide), start, *empty))

        def gradient(d_states: Any, d_last: Any) -> tuple[Any, ...]:
            before = tf.concat([start[tf.newaxis], states[:-1]], axis=0)

            def step(t: Any, d_state: Any, parts: Any) -> tuple[Any, ...]:
                d_state += tf.cast(at(d_states, t), wide)
                update, reset, new, inner = gates(*tf.split(tf.cast(at(kept, t), wide), 4, axis=1))
                through = _where(counts, t, d_state, tf.zeros_like(d_state))
                d_new = through * (1 - update) * (1 - new * new)
                d_update = through * (tf.cast(at(before, t), wide) - new) * update * (1 - update)
                d_reset = d_new * inner * reset * (1 - reset)
                part = tf.cast(tf.concat([d_update, d_reset, d_new * reset, d_new], axis=1), kind)
                d_state = _where(counts, t, d_state * update, d_state)
                return d_state + _back(part[:, : 3 * units], recurrent), put(parts, t, part)

            begin = (tf.cast(d_last, wide), room([steps, batch, 4 * units], kind))
            d_start, parts = loop(step, range(steps - 1, -1, -1), begin)
            d_products, d_inners = _of_inputs(parts, units), parts[..., : 3 * units]
            total = tf.reduce_sum(tf.cast(parts, wide), axis=[0, 1])
            d_bias = tf.stack([_of_inputs(total, units), total[: 3 * units]])
            return d_products, tf.cast(d_start, kind), _summed(before, d_inners), tf.cast(d_bias, bias.dtype)

        return (states, last), gradient

    return run(products, start, recurrent, bias)


def _of_inputs(parts: Any, units: int) -> Any:
    """Of a GRU's gradients (..., 4 units) those of the inputs' products: update, reset and new, not new's inner one."""
    return tf.concat([parts[..., : 2 * units], parts[..., 3 * units :]], axis=-1)


def lstm(products: Any, start: Any, start_cell: Any, recurrent: Any, bias: Any, counts: Any) -> Any:
    """(states (steps, batch, units), the last one, the last cell state).

    products: (steps, batch, 4 units), of the inputs. start, start_cell: (batch, units). recurrent: (units, 4 units).
    bias: (4 units,). counts: (steps, batch, 1), false where a step is masked.
    """
    kind, wide = products.dtype, wide_type(products.dtype)
    steps, (batch, units) = products.shape[0], start.shape

    def gates(sums: Any) -> tuple[Any, ...]:
        enter, keep, new, show = tf.split(sums, 4, axis=1)
        return tf.sigmoid(enter), tf.sigmoid(keep), tf.tanh(new), tf.sigmoid(show)

    @tf.custom_gradient
    def run(products: Any, start: Any, start_cell: Any, recurrent: Any, bias: Any) -> Any:
        def step(t: Any, cell: Any, state: Any, cells: Any, states: Any, kept: Any) -> tuple[Any, ...]:
            sums = sum(tf.cast(each, wide) for each in (at(products, t), tf.matmul(state, recurrent), bias))
            enter, keep, new, show = gates(sums)
            next_cell = keep * cell + enter * new
            state = _where(counts, t, tf.cast(show * tf.tanh(next_cell), kind), state)
            cell = _where(counts, t, next_cell, cell)
            every = ((cells, cell), (states, state), (kept, sums))
            return cell, state, *(put(stack, t, tf.cast(each, kind)) for stack, each in every)

        empty = (room([steps, batch, n * units], kind) for n in (1, 1, 4))
        last_cell, last, cells, states, kept = loop(step, range(steps), (tf.cast(start_cell, wide), start, *empty))

        def gradient(d_states: Any, d_last: Any, d_last_cell: Any) -> tuple[Any, ...]:
            before = tf.concat([start[tf.newaxis], states[:-1]], axis=0)
            cells_before = tf.concat([start_cell[tf.newaxis], cells[:-1]], axis=0)

            def step(t: Any, d_cell: Any, d_state: Any, parts: Any) -> tuple[Any, ...]:
                d_state += tf.cast(at(d_states, t), wide)
                cell = tf.cast(at(cells_before, t), wide)
                enter, keep, new, show = gates(tf.cast(at(kept, t), wide))
                shown = tf.tanh(keep * cell + enter * new)
                none = tf.zeros_like(d_state)
                through, d_next = (_where(counts, t, each, none) for each in (d_state, d_cell))
                d_next += through * show * (1 - shown * shown)
                part = (
                    d_next * new * enter * (1 - enter),
                    d_next * cell * keep * (1 - keep),
                    d_next * enter * (1 - new * new),
                    through * shown * show * (1 - show),
                )
                part = tf.cast(tf.concat(part, axis=1), kind)
                d_before = _back(part, recurrent)
                if counts is not None:
                    d_before += _where(counts, t, none, d_state)
                return _where(counts, t, d_next * keep, d_cell), d_before, put(parts, t, part)

            begin = (tf.cast(d_last_cell, wide), tf.cast(d_last, wide), room(products.shape, kind))
            d_cell, d_state, parts = loop(step, range(steps - 1, -1, -1), begin)
            d_bias = tf.cast(tf.reduce_sum(tf.cast(parts, wide), axis=[0, 1]), bias.dtype)
            return parts, tf.cast(d_state, kind), tf.cast(d_cell, kind), _summed(before, parts), d_bias

        return (states, last, tf.cast(last_cell, kind)), gradient

    return run(products, start, start_cell, recurrent, bias)


def _where(counts: Any, t: Any, new: Any, old: Any) -> Any:
    return new if counts is None else tf.where(at(counts, t), new, old)


def _summed(states: Any, parts: Any) -> Any:
    """The gradient of the recurrent kernel: states^T . parts, summed over steps and batch."""
    left, right = (tf.reshape(each, [-1, each.shape[2]]) for each in (states, parts))
    return tf.matmul(left, right, transpose_a=True)


def _back(part: Any, recurrent: Any) -> Any:
    """(batch, gates) . (units, gates)^T; of narrow numbers not rounded again."""
    if part.dtype not in NARROW:
        return tf.matmul(part, recurrent, transpose_b=True)
    from tensorflow.compiler.tf2xla.python import xla
    from tensorflow.compiler.xla import xla_data_pb2

    second = xla_data_pb2.DotDimensionNumbers(lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1])
    return xla.dot_general(part, recurrent, second, preferred_element_type=tf.float32)
