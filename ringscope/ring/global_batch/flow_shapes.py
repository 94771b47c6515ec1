"""Rules for operations on shapes that depend on the number of rows, and for operations that rearrange rows
(flow.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .flow import (
    COUNT,
    SUM,
    Fixed,
    Flow,
    Joint,
    NotApart,
    Own,
    Places,
    Rows,
    Sizes,
    Value,
    only_rows,
    rank_of,
    rows_of,
    static,
)
from .flow_values import of_numbers


def shape(flow: Flow, op: Any, given: Sequence[Value]) -> Value | list[Value]:
    found: list[Value] = []
    for tensor, value in zip(op.inputs, given, strict=True):
        if not isinstance(value, (Rows, Places)):
            found.append(Fixed())
            continue
        axis, kind = (value.axis, COUNT if value.whole else SUM) if isinstance(value, Rows) else (0, SUM)
        if op.type == "Size":
            found.append(flow.own(op.outputs[0], kind))
        else:
            found.append(Sizes(tuple(kind if i == axis else None for i in range(rank_of(tensor)))))
    return found


def rank(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    return Fixed()


def _entries(flow: Flow, tensor: Any, entries: Sequence[tuple[int, int] | None]) -> Value:
    """The value of a tensor with these entries of a shape: a vector, or a scalar for one entry."""
    if not any(entries):
        return Fixed()
    if tensor.shape.rank == 0:
        (kind,) = entries
        return flow.own(tensor, kind or COUNT)
    return Sizes(tuple(entries))


def sliced(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    value = given[0]
    if isinstance(value, Places):
        return Places()
    begin, end, strides = (static(tensor).tolist() for tensor in op.inputs[1:])
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if isinstance(value, Sizes):
        if masks["shrink_axis"]:
            return _entries(flow, op.outputs[0], [value.of[begin[0]]])
        start, stop = (None if masks[name] else at[0] for name, at in (("begin", begin), ("end", end)))
        return _entries(flow, op.outputs[0], value.of[start : stop : strides[0]])
    ((tensor, rows),) = only_rows(op, given)
    axis, at = 0, 0  # an axis of the input, and the axis of the result that it becomes
    for i in range(len(begin)):
        bit = 1 << i
        if masks["ellipsis"] & bit:
            later = sum(not masks["new_axis"] & (1 << j) for j in range(i + 1, len(begin)))
            skipped = rank_of(tensor) - later - axis
            if axis <= rows.axis < axis + skipped:
                return rows_of(flow, op, given, at + rows.axis - axis)
            axis, at = axis + skipped, at + skipped
        elif masks["new_axis"] & bit:
            at += 1
        else:
            if axis == rows.axis:
                whole = masks["begin"] & bit and masks["end"] & bit and strides[i] in (1, -1)
                if masks["shrink_axis"] & bit or not whole:
                    raise NotApart("an operation on only some samples of the batch")
                return rows_of(flow, op, given, at)
            axis, at = axis + 1, at + (0 if masks["shrink_axis"] & bit else 1)
    return rows_of(flow, op, given, at + rows.axis - axis)


def packed(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    if any(isinstance(value, Rows) for value in given):
        found = only_rows(op, given)
        axis = op.get_attr("axis") % rank_of(op.outputs[0])
        if len({value.axis for _, value in found}) > 1 or len(found) < len(given):
            raise NotApart("samples joined with values that belong to no sample")
        own = found[0][1].axis
        return rows_of(flow, op, given, own + (axis <= own))
    if op.outputs[0].dtype.is_integer and rank_of(op.outputs[0]) == 1:
        if any(isinstance(value, Joint) for value in given):
            raise NotApart("a shape that depends on the number of samples of all ranks")
        return Sizes(tuple((v.degree, v.power) if isinstance(v, Own) else None for v in given))
    return of_numbers(flow, op, given) if all(isinstance(v, (Fixed, Own, Joint)) for v in given) else _refused(op)


def _refused(op: Any) -> Value:
    raise NotApart(op.type)


def concatenated(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    """The rule for ConcatV2."""
    *parts, _ = given
    if any(isinstance(value, Sizes) for value in parts):
        entries: list[tuple[int, int] | None] = []
        for tensor, value in zip(op.inputs, parts, strict=False):
            entries += value.of if isinstance(value, Sizes) else [None] * (tensor.shape[0] or 0)
        return _entries(flow, op.outputs[0], entries)
    found = only_rows(op, parts + [Fixed()])
    axis = int(static(op.inputs[-1])) % rank_of(op.outputs[0])
    if len({value.axis for _, value in found}) > 1 or len(found) < len(parts):
        raise NotApart("samples joined with values that belong to no sample")
    rows = rows_of(flow, op, given[:-1], found[0][1].axis)
    # each row now has several entries that are not adjacent
    return rows._replace(each=0) if axis == rows.axis else rows


def reshaped(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    value, (result,) = given[0], op.outputs
    if isinstance(value, (Places, Joint, Fixed)) or not isinstance(given[1], (Fixed, Sizes)):
        return Places() if isinstance(value, Places) else _refused(op)
    if isinstance(value, Own):
        return value
    if isinstance(value, Sizes):
        return _entries(flow, result, value.of)
    if not isinstance(value, Rows):
        raise NotApart(f"{op.type} of {type(value).__name__}")
    rank_of(op.inputs[0])
    before, after = list(op.inputs[0].shape), _sizes_of(result, op.inputs[1], given[1])
    lead = 0
    while lead < len(after) - 1 and after[lead] == 1:
        lead += 1
    if len(after) == 1:
        others = before[: value.axis] + before[value.axis + 1 :]
        others_of_row = _product_of(others)
        each = None if others_of_row is None or value.each is None else value.each * others_of_row
        first = all(size == 1 for size in before[: value.axis])
        return rows_of(flow, op, given, 0, each=each if first else 0)
    if value.each == 0:
        raise NotApart("an operation that separates the values of one sample")
    if any(size != 1 for size in before[: value.axis]) or not after[lead:]:
        raise NotApart("an axis of samples that is not the first")
    inner, outer = before[value.axis + 1 :], after[lead + 1 :]
    if inner == outer:
        return rows_of(flow, op, given, lead)
    if lead == 0 and value.whole and _is_laid_as(flow, op.inputs[1]):
        return rows_of(flow, op, given, lead, each=1)
    size, per_row = _product_of(outer), _product_of(inner)
    if size is None:
        raise NotApart("open dimensions")
    if per_row is None or value.each is None:
        # A dimension of unknown size joins the rows' axis if the dimensions after it make up the rest of the new shape.
        if any(_product_of(inner[i:]) == size for i in range(len(inner) + 1)):
            return rows_of(flow, op, given, lead, each=None)
        raise NotApart("open dimensions")
    each = value.each * per_row
    if size == 0 or each % size:
        raise NotApart("an operation that joins several samples into one")
    return rows_of(flow, op, given, lead, each=each // size)


def _product_of(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _is_laid_as(flow: Flow, shape: Any) -> bool:
    """True if this is the shape of a tensor with one entry for each row of the batch."""
    if shape.op.type != "Shape":
        return False
    value = flow.values.get(shape.op.inputs[0].name)
    return isinstance(value, Rows) and value.axis == 0 and value.each == 1 and value.whole


def _sizes_of(result: Any, shape: Any, value: Value) -> list[int | None]:
    """The sizes that a Reshape asks for, None for unknown ones. `static` may know some that TensorFlow does not."""
    if isinstance(value, Fixed):
        try:
            return [None if size < 0 else int(size) for size in static(shape)]
        except NotApart:
            pass
    rank_of(result)
    return list(result.shape)


def expanded(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    value = given[0]
    if not isinstance(value, Rows):
        return value if isinstance(value, (Own, Joint, Places)) else _refused(op)
    axis = int(static(op.inputs[1])) % rank_of(op.outputs[0])
    return rows_of(flow, op, given, value.axis + (axis <= value.axis))


def squeezed(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    value = given[0]
    if not isinstance(value, Rows):
        return value if isinstance(value, (Own, Joint, Places)) else _refused(op)
    rank = rank_of(op.inputs[0])
    gone = [axis % rank for axis in op.get_attr("squeeze_dims")]
    gone = gone or [i for i, size in enumerate(op.inputs[0].shape) if size == 1]
    if value.axis in gone:
        raise NotApart("a batch of one")
    return rows_of(flow, op, given, value.axis - sum(axis < value.axis for axis in gone))


def transposed(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    if isinstance(given[0], Own):
        return given[0]
    ((_, rows),) = only_rows(op, given)
    return rows_of(flow, op, given, static(op.inputs[1]).tolist().index(rows.axis))


def gathered(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    of, at = given[:2]
    axis = int(static(op.inputs[2])) if len(op.inputs) > 2 else 0
    batch = op.get_attr("batch_dims") if op.type == "GatherV2" else 0
    if isinstance(of, Sizes) and isinstance(at, Fixed):
        places = static(op.inputs[1]).reshape(-1).tolist()
        return _entries(flow, op.outputs[0], [of.of[i] for i in places])
    if isinstance(of, Places):
        return Places()
    axis %= op.inputs[0].shape.rank or 1  # a variable's handle is a scalar
    if isinstance(of, Rows) and isinstance(at, Places) and axis == of.axis:
        if rank_of(op.inputs[1]) != 1:
            raise NotApart("samples picked by an index of several dimensions")
        return rows_of(flow, op, [of], of.axis, whole=False, each=1)
    if isinstance(of, Fixed) and isinstance(at, Rows) and not batch:
        return rows_of(flow, op, given[:2], axis + at.axis)
    if isinstance(of, Rows) and isinstance(at, Fixed) and not batch and axis != of.axis:
        return rows_of(flow, op, given[:2], of.axis + (rank_of(op.inputs[1]) - 1 if axis < of.axis else 0))
    if isinstance(of, Rows) and isinstance(at, Rows) and batch > of.axis == at.axis:
        return rows_of(flow, op, given[:2], of.axis)
    raise NotApart("samples picked by an index that is computed")


def gathered_by_several(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    """The rule for GatherNd."""
    of, at = given
    if isinstance(of, Rows) and isinstance(at, Places) and (op.inputs[1].shape[-1] or 0) > of.axis:
        return rows_of(flow, op, [of], 0, whole=False, each=1)
    if isinstance(of, Fixed) and isinstance(at, Rows) and at.axis < rank_of(op.inputs[1]) - 1:
        return rows_of(flow, op, given, at.axis)
    raise NotApart("samples picked by an index that is computed")


def where(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    only_rows(op, given)
    return Places()


def tiled(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    ((_, rows),) = only_rows(op, given)
    if static(op.inputs[1])[rows.axis] != 1:
        raise NotApart("an operation that repeats samples")
    return rows_of(flow, op, given, rows.axis)


def padded(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    ((_, rows),) = only_rows(op, given)
    if static(op.inputs[1])[rows.axis].any() or rows.power:
        raise NotApart("padding that adds samples")
    return rows_of(flow, op, given, rows.axis)


def split(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    ((tensor, rows),) = only_rows(op, given)
    if op.type == "Unpack":
        axis = op.get_attr("axis") % rank_of(tensor)
    else:
        axis = int(static(op.inputs[0] if op.type == "Split" else op.inputs[2])) % rank_of(tensor)
    if axis == rows.axis:
        raise NotApart("an operation on only some samples of the batch")
    return rows_of(flow, op, given, rows.axis - (op.type == "Unpack" and axis < rows.axis))


def filled(flow: Flow, op: Any, given: Sequence[Value]) -> Value:
    """The rule for Fill, BroadcastTo and random numbers whose shape depends on the number of rows."""
    sizes = given[1] if op.type == "BroadcastTo" else given[0]
    if not isinstance(sizes, Sizes):
        raise NotApart(op.type)
    axes = [i for i, kind in enumerate(sizes.of) if kind is not None]
    if len(axes) > 1 or (op.type in ("Fill", "BroadcastTo") and isinstance(given[op.type == "Fill"], Joint)):
        raise NotApart(op.type)
    rows = [value for value in given if isinstance(value, Rows)]
    if op.type == "BroadcastTo" and rows and rank_of(op.outputs[0]) - axes[0] != rank_of(op.inputs[0]) - rows[0].axis:
        raise NotApart("samples along two axes: pairs of samples")
    return rows_of(
        flow, op, [v for v in given if isinstance(v, (Rows, Fixed))], axes[0], whole=sizes.of[axes[0]] == COUNT
    )
