"""GRU, LSTM and simple recurrent layers as one forward and one backward loop, instead of Keras's loop and cuDNN's
kernels, which XLA cannot compile.

All steps' inputs are multiplied by the kernel at once, before the loop. A step computes the product with the state, the
bias and the gates. It keeps the sums from which the gates are computed; the backward loop reads the sums and the
states. One product afterwards gives the recurrent kernel's gradient, summed over the steps in float32. Gates and states
are float32 inside the loop, whatever the layer's type; sums and states are rounded when they are kept (rounded gates
would lose more, since the gradient of a gate near 1 lies in its distance from 1). So in bfloat16 the numbers are more
exact than in Keras's own loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...internals.frameworks import tf
from ..half_precision import times_transposed
from . import dropout
from .gru import gru
from .loop import steps_first
from .lstm import Product, lstm
from .simple_rnn import simple_rnn


def runs_in_cudnn(layer: Any) -> bool:
    """True if this recurrent layer uses cuDNN's kernel outside a compiled step."""
    from keras.src.backend.tensorflow.rnn import cudnn_ok

    cell = layer.cell
    if not hasattr(layer, "use_cudnn"):
        return False
    options = {"reset_after": cell.reset_after} if hasattr(cell, "reset_after") else {}
    return (
        layer.use_cudnn in ("auto", True)
        and not layer.recurrent_dropout
        and cudnn_ok(cell.activation, cell.recurrent_activation, layer.unroll, cell.use_bias, **options)
    )


def fits(layer: Any) -> bool:
    """True if the loop can compute this recurrent layer. Its activations must be Keras's; masks, returned states,
    direction and dropout may be any."""
    cell: Any = getattr(layer, "cell", None)
    kind, _ = _kinds().get(type(cell), (None, None))
    return (
        kind is not None
        and isinstance(layer, kind)
        and type(layer).inner_loop is kind.inner_loop
        and is_activated_by_keras(cell)
        and getattr(cell, "reset_after", True)
        and not (layer.unroll or layer.stateful)
    )


def _kinds() -> dict[Any, tuple[Any, Callable[..., Any]]]:
    """Cell class -> (layer class, function for the loop over its steps)."""
    from keras import layers

    return {
        layers.GRUCell: (layers.GRU, gru),
        layers.LSTMCell: (layers.LSTM, lstm),
        layers.SimpleRNNCell: (layers.SimpleRNN, simple_rnn),
    }


def is_activated_by_keras(cell: Any) -> bool:
    """True if the cell's activations are Keras's functions: neither layers, which may have weights, nor a user's own
    functions."""
    used = cell.activation, getattr(cell, "recurrent_activation", cell.activation)
    return all(isinstance(each, FunctionType) and each.__module__.startswith("keras.") for each in used)


def weights_of(cell: Any) -> tuple[Any, Any, Any]:
    """(kernel, recurrent kernel, bias), with zeros if there is no bias."""
    kernel, recurrent = tf.convert_to_tensor(cell.kernel), tf.convert_to_tensor(cell.recurrent_kernel)
    if cell.use_bias:
        return kernel, recurrent, tf.convert_to_tensor(cell.bias)
    products = [2] if hasattr(cell, "reset_after") else []  # a GRU has one bias for inputs and one for states
    return kernel, recurrent, tf.zeros([*products, kernel.shape[-1]], kernel.dtype)


def is_known(kernel: Any, sequences: Any, start: list[Any]) -> bool:
    """True if all shapes are known, there is at least one step, and all types are the kernel's."""
    given = sequences, *start
    known = all(each.shape.is_fully_defined() for each in given) and sequences.shape[1] > 0
    return known and all(each.dtype == kernel.dtype for each in given)


def inner_loop(
    layer: Any, otherwise: Callable[..., Any], sequences: Any, initial_state: Any, mask: Any, training: bool = False
) -> tuple[Any, Any, list[Any]]:
    """Replaces a layer's `inner_loop`. Returns (last output, outputs (batch, steps, units), last states). sequences:
    (batch, steps, inputs). mask: (batch, steps) or None."""
    from keras import tree

    cell, start = layer.cell, tree.flatten(initial_state)
    mask = next(iter(tree.flatten(mask)), None)
    kernel, recurrent, bias = weights_of(cell)
    if not (is_known(kernel, sequences, start) and (mask is None or mask.shape.rank == 2)):
        return otherwise(sequences, initial_state, mask, training)  # type: ignore[no-any-return]
    x = steps_first(sequences)
    counts = None if mask is None else tf.transpose(tf.cast(mask, tf.bool))[..., tf.newaxis]
    if layer.go_backwards:
        x, counts = tf.reverse(x, [0]), None if counts is None else tf.reverse(counts, [0])
    if training and layer.dropout:
        products = dropout.of_inputs(x, kernel, dropout.masks_of(cell.get_dropout_mask(x[0])))
    else:
        products = tf.reshape(tf.matmul(tf.reshape(x, [-1, x.shape[2]]), kernel), [*x.shape[:2], -1])
    product: Product = OfMatrices()
    if training and layer.recurrent_dropout:
        product = dropout.OfDropped(dropout.masks_of(cell.get_recurrent_dropout_mask(start[0])))
    _, over_steps = _kinds()[type(cell)]
    states, *last = over_steps(cell, product, products, *start, recurrent, bias, counts)
    return _as_keras_gives(layer, states, last, counts)


def _as_keras_gives(layer: Any, states: Any, last: list[Any], counts: Any) -> tuple[Any, Any, list[Any]]:
    """The layer's results with the outputs that Keras gives at masked steps: the previous output, or zeros with
    `zero_output_for_mask` and for layers that use cuDNN."""
    output = last[0]
    if counts is not None:
        zeros = layer.zero_output_for_mask or runs_in_cudnn(layer)
        shown = counts if zeros else tf.cumsum(tf.cast(counts, tf.int32)) > 0
        states = tf.where(shown, states, tf.zeros_like(states))
        output = output if runs_in_cudnn(layer) else states[-1]
    return output, steps_first(states), last


class OfMatrices(Product):
    """The recurrent product as a product of matrices: (batch, units) . (units, gates)."""

    def there(self, state: Any, recurrent: Any) -> Any:
        return tf.matmul(state, recurrent)

    def back(self, part: Any, recurrent: Any) -> Any:
        return times_transposed(part, recurrent)

    def summed(self, states: Any, parts: Any) -> Any:
        left, right = (tf.reshape(each, [-1, each.shape[2]]) for each in (states, parts))
        return tf.matmul(left, right, transpose_a=True)
