"""Cross-entropy over a large float32 head in two halves of its rows, so that all logits are never in memory at once.

The logits and their gradients are a language model's largest tensors: 3.1 GiB in float32 and 1.5 in bfloat16 for 16 384
tokens of 50 257 words. A token's gradient needs no other token's loss. So each half has its own products and loss, and
XLA computes the second half when the gradients of the first have been used: a GPT-2 small trains in 10.8 GiB in the
place of 12.8 on an H200. The weight's gradient is the sum of two products, which XLA adds inside the optimizer's
kernel. A translator with smoothed labels, compiled for an H100, holds 6.6 GiB between its kernels in the place of 7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..internals.frameworks import keras, tf
from ..internals.laid_over import laid_over
from . import entropy, one_hot, padded_products
from .barriers import apart

# A head with a bias is halved if its number of classes is a multiple of this. Products of other heads are padded, and
# the barrier before the bias has XLA copy the logits without their padding: compiled for an H100, the step of a
# BERT-base of 30 522 words moves 65.5 GB in the place of 61.0.
MULTIPLE = padded_products.BYTES // tf.bfloat16.size
LEAST = 1 << 27  # logits; fewer are not worth a second product for the weight's gradient


class Head(NamedTuple):
    """Logits as product(rows . matrix), changed row by row. after: what changes a half's logits (`_change`), the last
    one first. read: tensors between the product and the loss, each with its number of readers before the loss."""

    product: padded_products.Product
    after: list[Callable[[Any, int], Any]]
    read: list[tuple[Any, int]]


class ReadAgain(Exception):
    """Something reads all logits beside the loss that was computed in halves. The step is then traced again without
    this form (retrace.py)."""


def one_loss_reads_logits(model: Any) -> bool:
    """True if nothing of Keras but one loss reads the model's outputs in a step; another reader would need all logits
    again."""
    own = ("train_step", "test_step", "compute_loss", "compute_metrics")
    keeps = all(getattr(type(model), name, None) is getattr(keras.Model, name) for name in own)
    loss = getattr(model, "loss", None)
    is_one = loss is not None and not isinstance(loss, (dict, list, tuple))
    return keeps and is_one and getattr(model, "_compile_metrics", None) is None


@contextmanager
def of_heads() -> Iterator[None]:
    """Within this context, TensorFlow's two softmax cross-entropies are traced in halves for logits of such a head.
    Raises ReadAgain at its end if another operation reads such logits, too, as a user's loss may."""
    sparse, dense = tf.nn.sparse_softmax_cross_entropy_with_logits, tf.nn.softmax_cross_entropy_with_logits
    made: list[Head] = []

    def of_labels(labels: Any, logits: Any, name: str | None = None) -> Any:
        labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
        head = _head(logits) if labels.shape == logits.shape[:-1] else None
        if head is None:
            return sparse(labels, logits, name)
        made.append(head)
        return _in_halves(head, labels, lambda sought, logits, _: sparse(sought, logits))

    def of_shares(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Any:
        labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
        is_last = axis in (-1, logits.shape.rank - 1) if logits.shape.rank else False
        chosen = one_hot.found(labels) if is_last and labels.shape == logits.shape else None
        head = None if chosen is None or labels.dtype != logits.dtype else _head(logits)
        if chosen is None or head is None:
            return dense(labels, logits, axis, name)

        def of_half(sought: Any, logits: Any, product: Any) -> Any:
            losses = entropy.of_one_hot(_beside(sought, product), chosen.on, chosen.off, logits)
            return _returned_beside(losses, product)

        made.append(head)
        return _in_halves(head, chosen.classes, of_half)

    with laid_over(
        tf.nn, sparse_softmax_cross_entropy_with_logits=of_labels, softmax_cross_entropy_with_logits=of_shares
    ):
        yield
    if any(len(each.consumers()) > count for head in made for each, count in head.read):
        raise ReadAgain("the loss reads the logits again")


def _in_halves(head: Head, labels: Any, entropy_of: Callable[[Any, Any, Any], Any]) -> Any:
    """The losses of all rows, in the shape of the labels."""
    losses = []
    of_rows, of_labels = _halves(head.product.rows), _halves(tf.reshape(labels, [-1]))
    for half, (rows, sought) in enumerate(zip(of_rows, of_labels, strict=True)):
        logits = product = padded_products.wide_product(rows, head.product.matrix)
        for change in reversed(head.after):
            logits = change(logits, half)
        losses.append(entropy_of(sought, logits, product))
    return tf.reshape(tf.concat(losses, 0), labels.shape)


def _head(logits: Any) -> Head | None:
    """The product that makes the logits; None if there is none, or if another operation reads it, too."""
    known = hasattr(logits, "graph") and logits.shape.is_fully_defined()
    if not known or logits.dtype != tf.float32 or logits.shape.num_elements() < LEAST or logits.consumers():
        return None
    after: list[Callable[[Any, int], Any]] = []
    read = [(logits, 0)]
    while (product := padded_products.wide_product_of(logits)) is None:
        op = logits.op
        given = [each for each in op.inputs if each.dtype == tf.float32 and each.shape[-1:] == logits.shape[-1:]]
        if not given or len(given[0].consumers()) > 1 or (change := _change(op, given)) is None:
            return None
        after.append(change)
        logits = given[0]
        read.append((logits, 1))
    return Head(product, after, read)


def _change(op: Any, given: list[Any]) -> Callable[[Any, int], Any] | None:
    """A function of (a half's logits (rows, classes), the half's number), which does what the operation does; None if
    the operation is unknown here.

    The halves share no tensor but the weight: XLA would compute both at once to read a shared bias or mask once.
    """
    if op.type in ("Identity", "Reshape"):
        return lambda made, half: made
    if op.type in ("AddV2", "BiasAdd") and len(given) == 2 and given[1].shape.rank == 1:
        if given[0].shape[-1] % MULTIPLE:
            return None
        return lambda made, half: made + _bias_apart(given[1], made)
    if op.type == "SelectV2" and op.inputs[1] is given[0]:  # Keras's ignore_class sets the logits of a row to 0
        which, _, other = op.inputs
        if other.shape.num_elements() == 1 and which.shape == [*given[0].shape[:-1], 1]:
            counts = [apart(each) for each in _halves(tf.reshape(which, [-1, 1]))]
            return lambda made, half: tf.where(counts[half], made, tf.reshape(other, []))
    return None


def _halves(rows: Any) -> tuple[Any, Any]:
    half = rows.shape[0] // 2
    return rows[:half], rows[half:]


def _bias_apart(bias: Any, made: Any) -> Any:
    """The bias behind a barrier of this half's own, as its gradient is."""

    @tf.custom_gradient
    def run(bias: Any) -> tuple[Any, Callable[[Any], Any]]:
        return _beside(bias, made), apart

    return run(bias)


def _returned_beside(losses: Any, product: Any) -> Any:
    """The losses of a half, whose gradient comes back behind a barrier of this half's own."""

    @tf.custom_gradient
    def run(losses: Any) -> tuple[Any, Callable[[Any], Any]]:
        return tf.identity(losses), lambda upstream: _beside(upstream, product)

    return run(losses)


def _beside(tensor: Any, product: Any) -> Any:
    """The tensor behind a barrier that also holds this half's product: XLA joins barriers of equal operands."""
    from tensorflow.compiler.tf2xla.python import xla

    return xla.optimization_barrier(tensor, product)[0]
