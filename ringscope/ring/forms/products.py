"""Products with a weight as products of two matrices, where Keras multiplies sample by sample.

Keras writes `ops.einsum`, and so attention's projections, as products of (samples, positions, inputs) with (inputs,
outputs). The weight's gradient is then computed for each sample, written to memory in bfloat16, and summed afterwards.
As a product of two matrices it is summed in float32, which is less work and more precise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from math import prod
from typing import Any

from ..internals.frameworks import backend_ops, tf
from ..internals.laid_over import laid_over
from .half_precision import NARROW
from .padded_products import as_tensor, product

FOLDED = 8  # rows added to the weight, one of them the bias; tensor cores read 16-bit rows in multiples of 8


def flat() -> AbstractContextManager[None]:
    """Within this context, `keras.ops.einsum` with a weight is traced as a product of two matrices."""
    keras_own = backend_ops.numpy.einsum

    def einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
        if len(operands) > 2 and not options and (pairs := two_by_two(subscripts, *map(as_tensor, operands))):
            left = list(operands)
            for places, pair in pairs:
                left.append(einsum(*_rows_first(pair, *[left.pop(place) for place in places])))
            return left[0]
        turned, order = by_rows(subscripts)
        axes = shared_axes(turned) if len(operands) == 2 and not options else 0
        given, weight = map(as_tensor, operands) if axes else (None, None)
        if not axes or not _are_of(subscripts, given, weight):
            return keras_own(subscripts, *operands, **options)
        weight = weight if order == sorted(order) else tf.transpose(weight, order)
        if (rows := _as_rows(given, weight, axes)) is None:
            return keras_own(subscripts, *operands, **options)
        return _outward(product(rows, _as_matrix(weight, axes)), given, weight, axes)

    return laid_over(backend_ops.numpy, einsum=einsum)


def two_by_two(subscripts: str, *operands: Any) -> list[tuple[tuple[int, ...], str]]:
    """The order of pairwise products as (places of the two operands, subscripts): both operands are removed, and their
    product is appended. NumPy and JAX use this order too. Empty if types or shapes do not allow it.

    TensorFlow instead takes the smallest product first: for `btew,bte,ewd->btd` it multiplies the weight first, for
    each e, and then sums over e a tensor that is larger than the result.
    """
    dense = all(isinstance(operand, tf.Tensor) and operand.shape.is_fully_defined() for operand in operands)
    if "." in subscripts or not dense or len({operand.dtype for operand in operands}) > 1:
        return []
    if not operands[0].dtype.is_floating:
        return []
    import opt_einsum  # TensorFlow's einsum requires this package

    _, path = opt_einsum.contract_path(subscripts, *(tuple(each.shape) for each in operands), shapes=True)
    return [(places, pair) for places, _, pair, *_ in path.contraction_list]


def _rows_first(pair: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    """(subscripts, first operand, second operand) of a product, with the operand first whose leading axis leads the
    result."""
    first, second, result = _axes_of(pair)
    turns = result and second.startswith(result[0]) and not first.startswith(result[0])
    return (f"{second},{first}->{result}", other, one) if turns else (pair, one, other)


def _axes_of(subscripts: str) -> tuple[str, str, str]:
    operands, _, result = subscripts.replace(" ", "").partition("->")
    given, _, weight = operands.partition(",")
    return given, weight, result


def by_rows(subscripts: str) -> tuple[str, list[int]]:
    """(the subscripts with the second operand's axes in the order of the first operand's and the result's, the old
    position of each axis): `btd,edw->btew` gives `btd,dew->btew`, [1, 0, 2].

    In the written order XLA would lay out the result with e first and transpose it afterwards, and a result is larger
    than a weight.
    """
    given, weight, result = _axes_of(subscripts)
    if not set(weight) <= set(given + result) or len(set(weight)) < len(weight):
        return subscripts, list(range(len(weight)))
    axes = "".join(sorted(weight, key=(given + result).index))
    return f"{given},{axes}->{result}", [weight.index(axis) for axis in axes]


def shared_axes(subscripts: str) -> int:
    """The number of axes that the product sums over, if it multiplies rows by one weight; 0 for any other product.

    These axes must be the first operand's last and the second operand's first axes, and the second operand, the weight,
    must serve for all other axes of the first one.
    """
    given, weight, result = _axes_of(subscripts)
    shared = "".join(axis for axis in weight if axis not in result)
    around, kept = given.removesuffix(shared), weight.removeprefix(shared)
    fits = shared and given != around and weight != kept and around + kept == result
    every = around.replace("...", "", 1) + weight
    return len(shared) if fits and len(set(every)) == len(every) and "." not in every else 0


def _are_of(subscripts: str, given: Any, weight: Any) -> bool:
    """True if both operands are dense tensors with as many axes as the subscripts name."""
    for axes, tensor in zip(_axes_of(subscripts)[:2], (given, weight), strict=True):
        if not isinstance(tensor, tf.Tensor) or tensor.shape.rank is None:
            return False
        more = tensor.shape.rank - len(axes.replace("...", ""))
        if more < 0 or (more > 0 and "..." not in axes):
            return False
    return True


def _as_rows(given: Any, weight: Any, axes: int) -> Any | None:
    """`given` as a matrix (product of the other axes, product of the summed axes); None if types or shapes do not allow
    it."""
    around, multiplied = given.shape[:-axes], given.shape[-axes:]
    known = list(around).count(None) <= 1 and multiplied == weight.shape[:axes] and weight.shape.is_fully_defined()
    alike = given.dtype == weight.dtype and given.dtype.is_floating
    return tf.reshape(given, [-1, prod(multiplied)]) if known and alike else None


def _as_matrix(weight: Any, axes: int) -> Any:
    return tf.reshape(weight, [prod(weight.shape[:axes]), -1])


def _outward(made: Any, given: Any, weight: Any, axes: int) -> Any:
    """The rows of a product reshaped to the einsum's result."""
    return tf.reshape(made, [*(-1 if n is None else n for n in given.shape[:-axes]), *weight.shape[axes:]])


def folds(layer: Any) -> bool:
    """True if the layer's bias can become a row of its weight."""
    from keras import layers

    return (
        isinstance(layer, layers.EinsumDense)
        and type(layer).call is layers.EinsumDense.call
        and layer.built
        and getattr(layer, "quantization_mode", None) is None
        and layer.bias is not None
        and shared_axes(layer.equation) > 0
    )


def with_bias(layer: Any, otherwise: Callable[..., Any], inputs: Any, *args: Any, **options: Any) -> Any:
    """Replaces the `call` of a layer, with the layer's bias as one more row of its weight. Used before the attention
    kernel, where a separate addition would read and write all outputs."""
    axes = shared_axes(layer.equation)
    weight, bias = (tf.convert_to_tensor(each) for each in (layer.kernel, layer.bias))
    rows = _as_rows(inputs, weight, axes)
    if rows is None or inputs.dtype not in NARROW or bias.shape != weight.shape[axes:]:
        return otherwise(inputs, *args, **options)
    made = _outward(_multiplied(rows, _as_matrix(weight, axes), tf.reshape(bias, [-1])), inputs, weight, axes)
    return made if layer.activation is None else layer.activation(made)


@tf.custom_gradient
def _multiplied(rows: Any, matrix: Any, bias: Any) -> tuple[Any, Callable[[Any], Any]]:
    """rows . matrix + bias, with the bias as one more row of the matrix and a one appended to each of `rows`. The
    bias's gradient, a sum over all rows, then comes out of the same product as the matrix's."""
    inputs = matrix.shape[0]
    longer = tf.pad(rows, [[0, 0], [0, FOLDED]], constant_values=1)
    below = tf.pad(bias[tf.newaxis], [[0, FOLDED - 1], [0, 0]])

    def gradient(upstream: Any) -> tuple[Any, Any, Any]:
        of_both = tf.matmul(longer, upstream, transpose_a=True)
        return tf.matmul(upstream, matrix, transpose_b=True), of_both[:inputs], of_both[inputs]

    return tf.matmul(longer, tf.concat([matrix, below], axis=0)), gradient
