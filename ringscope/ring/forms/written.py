"""Find attention that a user's layer writes out, softmax(query . key^T ...) . value, and replace it by the fused
kernel.

When the product with the values is traced, the operations before it are read: a softmax of a product, scaled by a
number, with masks that select or are added, and with dropout. The kernel replaces them (attention.py,
cudnn_dropout.py). The operations already traced are then unused, and XLA removes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from ..say import once
from . import attention, attention_dropout, constants, einsums, hashed, head_axes
from .choice import wanted

LOW = -9984.0  # the largest number that a mask gives to scores that do not count: -1e4 in bfloat16
LOW_SCALED = -500.0  # the largest that it may become when scores are scaled after the mask; float32 has no exp(-500)
# Each query's numbers are taken from their largest one, because bfloat16 rounds numbers near -1e4 to multiples of 64;
# but not from a lower one than this, beside which float32 keeps no fraction of a score.
VAST = -(2.0**23)
PASSED = ("Cast", "Identity")
TWICE = (
    "attention whose scores several masks hide, by `where` and by additions, takes each key twice in the fused kernel; "
    "one mask of all (`ops.logical_and`) is faster"
)


class Hidden(NamedTuple):
    """where(lets, scores, number)"""

    lets: Any
    number: float


class Written(NamedTuple):
    """scale * query . key^T, changed by `steps` in their order: `Hidden`, or a tensor that is added. query: (...,
    queries, size); key: (..., keys, size); with four axes if the scores have five (`head_axes.merged`)."""

    query: Any
    key: Any
    scale: float = 1.0
    steps: tuple[Any, ...] = ()

    def then(self, step: Any) -> Written:
        return self._replace(steps=(*self.steps, step))

    def hidden(self) -> list[Hidden]:
        return [step for step in self.steps if isinstance(step, Hidden)]

    def added(self) -> list[Any]:
        return [step for step in self.steps if not isinstance(step, Hidden)]


class Softmax(NamedTuple):
    """A softmax in the traced step, with what comes before and after. dropped: the dropout after it. masks: names of
    the masks that set results to zero."""

    scores: Any
    dropped: hashed.Dropped | None
    masks: set[str]


@contextmanager
def fused() -> Iterator[None]:
    """Within this context, products of softmax results with values are traced as the fused kernel, however they are
    called."""
    from tensorflow.python.ops import gen_linalg_ops, gen_math_ops

    own, own_einsum = gen_math_ops.batch_mat_mul_v2, gen_linalg_ops.einsum

    def multiplied(x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, **options: Any) -> Any:
        made = attended(x, y, adj_y) if _are_traced(x, y) and not adj_x else None
        return own(x, y, adj_x, adj_y, **options) if made is None else made

    def summed(inputs: Any, equation: str, **options: Any) -> Any:
        if _are_traced(*inputs) and any(map(_softmax, inputs)):  # before axes of other products are brought into order
            for shares, value, order in einsums.by_shares(equation, inputs):
                if (made := attended(shares, value, False)) is not None:
                    return tf.transpose(made, order)
        return own_einsum(inputs, equation, **options)

    with laid_over(gen_math_ops, batch_mat_mul_v2=multiplied), laid_over(gen_linalg_ops, einsum=summed):
        yield


def _are_traced(*tensors: Any) -> bool:
    return all(isinstance(each, tf.Tensor) and hasattr(each, "graph") for each in tensors)


def attended(shares: Any, value: Any, is_turned: bool) -> Any | None:
    """The product shares . value by the fused kernel; None if the shares are not from attention, or if there is no
    kernel. value: (..., keys, size); is_turned: it is (..., size, keys)."""
    if shares.shape.rank not in (3, 4, 5) or shares.shape.rank != value.shape.rank or shares.dtype != value.dtype:
        return None
    found = _softmax(shares)
    if found is None or not found.scores.shape.is_fully_defined():
        return None
    written = _read(found.scores)
    if written is None or written.query.shape[:-1] != head_axes.merged(found.scores).shape[:-1]:
        return None
    lets = [each.lets for each in written.hidden()]
    if not all(each.shape.is_fully_defined() for each in (*lets, *written.added())):
        return None
    values = head_axes.merged(head_axes.turned(value) if is_turned else value)
    heads = [head_axes.heads_last(each) for each in (written.query, written.key, values)]
    query, key, values = given = attention.in_bfloat16(heads)
    if not attention.fits(query, key, values, None):  # masks' sizes are known
        return None
    mask, plus = _mask_and_numbers(written, found.scores.shape)
    if found.masks and (mask is None or found.masks != {each.name for each in lets}):
        return None
    is_twice = plus is not None and plus.shape[3] == 2 * key.shape[1]
    if is_twice:
        key, values = tf.concat([key, tf.zeros_like(key)], axis=1), tf.concat([values, values], axis=1)
    options: dict[str, Any] = {"scale": written.scale, "causal": False, "plus": plus}
    if found.dropped is None:
        made = attention.attention(query, key, values, mask, zeroes=bool(found.masks), **options)
    elif not wanted("attention_dropout"):
        return None
    else:
        _, rate, seed = found.dropped
        made = attention_dropout.fused(query, key, values, mask, seed, rate=rate, zeroes=bool(found.masks), **options)
    if made is None:
        return None
    if given is not heads:
        once(attention.SAID)
    if is_twice:
        once(TWICE)
    if found.masks and found.dropped is None:
        seen = tf.transpose(tf.reduce_any(mask, axis=3, keepdims=True), [0, 2, 1, 3])
        made = tf.where(seen, made, tf.zeros((), made.dtype))
    made = tf.reshape(tf.transpose(made, [0, 2, 1, 3]), [*shares.shape[:-1], value.shape[-2 if is_turned else -1]])
    return tf.cast(made, value.dtype)


def _softmax(shares: Any) -> Softmax | None:
    """The softmax over the last axis that makes the shares; None if another operation does."""
    dropped, masks = None, set()
    if shares.op.type == "Reshape" and head_axes.joins_queries(shares, shares.op.inputs[0]):
        shares = shares.op.inputs[0]
    while True:
        op = shares.op
        if (drop := hashed.dropped_of(shares)) is not None and dropped is None:
            dropped, shares = drop, drop.inputs
        elif op.type in PASSED and op.inputs[0].dtype.is_floating:
            shares = op.inputs[0]
        elif op.type == "SelectV2" and constants.number(op.inputs[2]) == 0:
            masks.add(op.inputs[0].name)  # Keras's layer sets the results of queries that may see no key to zero
            shares = op.inputs[1]
        elif op.type == "Softmax":
            return Softmax(op.inputs[0], dropped, masks)
        elif op.type == "Reshape" and op.inputs[0].op.type == "Softmax":  # last_axis.py traces a softmax in this shape
            rows = op.inputs[0].op.inputs[0]
            scores = rows.op.inputs[0] if rows.op.type == "Reshape" else rows
            alike = scores.shape == shares.shape and rows.shape[-1] == scores.shape[-1]
            return Softmax(scores, dropped, masks) if alike else None
        else:
            return None


def _read(scores: Any) -> Written | None:
    """The product that makes the scores, with the operations between; None for anything else."""
    op = scores.op
    if op.type in PASSED and op.inputs[0].dtype.is_floating:
        return _read(op.inputs[0])
    if op.type in ("BatchMatMulV2", "BatchMatMulV3"):
        query, key = op.inputs
        is_plain = not op.get_attr("adj_x") and query.shape.rank == key.shape.rank == scores.shape.rank
        key = key if op.get_attr("adj_y") else head_axes.turned(key)
        return Written(head_axes.merged(query), head_axes.merged(key)) if is_plain else None
    if op.type == "Einsum" and (product := einsums.of_scores(op)) is not None:
        return Written(*map(head_axes.merged, product))
    if op.type == "Reshape" and head_axes.joins_queries(op.inputs[0], scores):
        inner = _read(op.inputs[0])
        if inner is None or inner.steps:
            return None
        *sizes, _ = head_axes.merged(scores).shape
        return inner._replace(query=tf.reshape(inner.query, [*sizes, inner.query.shape[-1]]))
    if (swapped := head_axes.before_swap(scores)) is not None:
        inner = _read(swapped)
        return None if inner is None or inner.steps else inner._replace(query=inner.key, key=inner.query)
    if op.type == "SelectV2":
        which, one, other = op.inputs
        for counts, rest, lets in ((one, other, which), (other, one, None)):
            number = constants.number(rest.op.inputs[1] if rest.op.type == "Fill" else rest)
            if number is not None and number <= LOW and (inner := _read(counts)) is not None:
                return inner.then(Hidden(tf.logical_not(which) if lets is None else lets, number))
    if op.type in ("Mul", "RealDiv"):
        one, other = op.inputs if op.type == "RealDiv" or op.inputs[1].shape.rank == 0 else op.inputs[::-1]
        number = constants.number(other)
        inner = _read(one) if number is not None and number > 0 else None
        if inner is not None and number is not None:
            return _times(inner, number if op.type == "Mul" else 1 / number)
    if op.type in ("AddV2", "Sub"):
        for one, other in (op.inputs, op.inputs[::-1])[: 1 if op.type == "Sub" else 2]:
            if one.shape == scores.shape and constants.is_fixed(other):
                other = other if op.type == "AddV2" else -other
                if (inner := _by_zeros(one, other)) is not None:
                    return inner
                if (inner := _read(one)) is not None:
                    return inner.then(other)
    return None


def _times(written: Written, number: float) -> Written | None:
    """None if hidden scores would no longer be low."""
    steps: list[Any] = []
    for step in written.steps:
        if not isinstance(step, Hidden):
            steps.append(step * tf.cast(number, step.dtype))
            continue
        if step.number * number > LOW_SCALED:
            return None
        steps.append(step._replace(number=step.number * number))
    return written._replace(scale=written.scale * number, steps=tuple(steps))


def _by_zeros(scores: Any, added: Any) -> Written | None:
    """As the first GPT-2 hides scores: scores * ones + low * (1 - ones), of a known mask of zeros and ones."""
    if scores.op.type != "Mul" or (low := constants.value(added)) is None:
        return None
    for one, other in (scores.op.inputs, scores.op.inputs[::-1]):
        ones = constants.value(other) if one.shape == scores.shape else None
        if ones is None or not np.isin(ones, (0, 1)).all():
            continue
        counts, low = np.broadcast_arrays(ones == 1, low.astype(np.float32))
        numbers = np.unique(low[~counts])
        if len(numbers) == 1 and numbers[0] <= LOW and not low[counts].any() and (inner := _read(one)) is not None:
            return inner.then(Hidden(constants.shared(counts), float(numbers[0])))
    return None


def _mask_and_numbers(written: Written, shape: Any) -> tuple[Any | None, Any | None]:
    """(mask of the scores that count, numbers that are added to scores), each with four axes; None if there is none.
    shape: of the scores.

    Scores are left out by a mask only if each query sees a key, or if the mask alone says what another query gives:
    equal shares of all keys. Otherwise this query weighs the low numbers, as is written. If a `where` hides some of its
    scores, no gradient flows through these. So the numbers are then of twice the keys: after the keys that no `where`
    hides come all keys again, as zeros, for the scores that a `where` hides.
    """

    def of_four(tensor: Any) -> Any:
        return head_axes.of_four(tensor, shape)

    hidden = written.hidden()
    lets = [each.lets for each in hidden]
    values = [constants.value(each) for each in written.added()]
    known = [each.astype(np.float32) for each in values if each is not None]
    total = np.atleast_1d(sum(known, np.float32(0)))
    counts = total > LOW
    is_known = len(known) == len(values)
    masks = [each for each in map(constants.value, lets) if each is not None]
    every = reduce(np.logical_and, masks, counts)
    if is_known and len(masks) == len(lets) and every.any(axis=-1).all():
        plus = of_four(constants.shared(np.where(counts, total, 0))) if total[counts].any() else None
        return (of_four(constants.shared(every)) if hidden or not every.all() else None), plus
    steps = [isinstance(each, Hidden) for each in written.steps]
    is_last = steps == sorted(steps)  # no addition comes after a `where`
    if hidden and is_known and counts.all() and is_last and len({each.number for each in hidden}) == 1:
        plus = of_four(constants.shared(total)) if total.any() else None
        return reduce(tf.logical_and, map(of_four, lets)), plus
    plus = tf.zeros([1, 1, 1, shape[-1]])
    for step in written.steps:
        if isinstance(step, Hidden):
            plus = tf.where(of_four(step.lets), plus, max(step.number, tf.float32.min))
        else:
            plus += tf.cast(of_four(step), tf.float32)
    plus = tf.maximum(plus, tf.float32.min)  # of -inf
    most = tf.reduce_max(plus, axis=3, keepdims=True)
    plus -= tf.where(most > VAST, most, 0.0)
    if not hidden:
        return None, plus
    through = reduce(tf.logical_and, map(of_four, lets))
    return None, tf.concat(
        [tf.where(through, plus, tf.float32.min), tf.where(through, tf.float32.min, plus)],
        axis=3,
    )
