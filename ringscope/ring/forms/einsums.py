"""The products of attention that `tf.einsum` computes, with their axes in the order of a batch of matrices.

Keras multiplies the usual ones as matrices. TensorFlow's own function, and Keras's for other orders of axes, makes one
operation of a product, with its axes as the letters of an equation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..internals.frameworks import tf

AROUND = "0123456789"  # the letters for the axes that an equation leaves to `...`


def _letters(equation: str, operands: Sequence[Any]) -> list[str] | None:
    """The letters of two operands and of the result; None for other equations."""
    parts = equation.replace(" ", "").replace("->", ",").split(",")
    ranks = [each.shape.rank for each in operands]
    if len(parts) != 3 or len(ranks) != 2 or None in ranks:
        return None
    more = {rank - len(part.replace("...", "")) for rank, part in zip(ranks, parts, strict=False) if "..." in part}
    if len(more) > 1:
        return None
    around = "".join(AROUND[:axes] for axes in more)
    parts = [part.replace("...", around) for part in parts]
    fits = [len(part) for part in parts[:2]] == ranks and all(len(set(part)) == len(part) for part in parts)
    return parts if fits else None


def _arranged(tensor: Any, letters: str, wanted: str) -> Any:
    """The tensor with its axes in the wanted order; an axis that it lacks has size 1."""
    tensor = tf.transpose(tensor, [letters.index(each) for each in wanted if each in letters])
    return tensor[tuple(slice(None) if each in letters else tf.newaxis for each in wanted)]


def of_scores(operation: Any) -> tuple[Any, Any] | None:
    """(query (..., queries, size), key (..., keys, size)) whose product an einsum computes, as (..., queries, keys);
    None for another einsum."""
    inputs = list(operation.inputs)
    letters = _letters(operation.get_attr("equation").decode(), inputs)
    if letters is None or len(letters[2]) < 3:
        return None
    *both, made = letters
    around, at, to = made[:-2], made[-2], made[-1]
    for query, key in ((0, 1), (1, 0)):
        summed = set(both[0]) & set(both[1]) - set(made)
        has = at in both[query] and at not in both[key] and to in both[key] and to not in both[query]
        if has and len(summed) == 1 and set(both[0]) | set(both[1]) == summed | set(made):
            size = summed.pop()
            return (
                _arranged(inputs[query], both[query], around + at + size),
                _arranged(inputs[key], both[key], around + to + size),
            )
    return None


def by_shares(equation: str, operands: Sequence[Any]) -> Iterator[tuple[Any, Any, list[int]]]:
    """Each way in which an einsum may multiply shares with values: (shares (..., queries, keys), values (..., keys,
    size), the order that makes the axes of their product (..., queries, size) the result's)."""
    letters = _letters(equation, operands)
    if letters is None:
        return
    *both, made = letters
    for one, other in ((0, 1), (1, 0)):
        shares, values = both[one], both[other]
        if len(shares) < 3:
            continue
        around, at, to = shares[:-2], shares[-2], shares[-1]
        sizes = set(values) - set(shares)
        fits = len(sizes) == 1 and to in values and at not in values
        if fits and set(made) == {*around, at, *sizes} and to not in made:
            size = sizes.pop()
            product = around + at + size
            yield (
                operands[one],
                _arranged(operands[other], values, around + to + size),
                [product.index(each) for each in made],
            )
