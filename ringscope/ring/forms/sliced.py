"""`tf.slice`, and `x[:, i]`, at a place that is computed in the step, such as a random crop's.

XLA takes the place of TensorFlow's slice as a constant: if it depends on the state of Keras's random numbers, XLA
compiles the whole step again each time. XLA's own dynamic slice reads the place while it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from . import constants


def anywhere() -> AbstractContextManager[None]:
    """Within this context, slices of a known size at an unknown place are traced as XLA's own. A place that is out of
    range, an error in TensorFlow, is moved into range."""
    from tensorflow.python.ops import gen_array_ops

    own, own_strided = gen_array_ops._slice, gen_array_ops.strided_slice

    def cut(input: Any, begin: Any, size: Any, name: str | None = None) -> Any:
        places, size = (tf.convert_to_tensor(each) for each in (begin, size))
        sizes = constants.value(size)
        if tf.get_static_value(places) is not None or sizes is None or (sizes < 0).any():
            return own(input, places, size, name=name)
        return dynamic(tf.convert_to_tensor(input), places, sizes)

    def pick(
        input: Any, begin: Any, end: Any, strides: Any, *, shrink_axis_mask: int = 0, name: Any = None, **masks: int
    ) -> Any:
        tensor, single = tf.convert_to_tensor(input), shrink_axis_mask & ~masks.get("new_axis_mask", 0)
        drawn = _drawn(begin, end, single) if single and tensor.shape.is_fully_defined() else []
        if not drawn:
            return own_strided(tensor, begin, end, strides, shrink_axis_mask=shrink_axis_mask, name=name, **masks)
        # First everything but the drawn indices, whose axes stay whole.
        bits = sum(1 << k for k in drawn)
        masks |= {each: masks.get(each, 0) | bits for each in ("begin_mask", "end_mask")}
        first, last = (
            tf.constant([0 if k in drawn else int(at) for k, at in enumerate(_known(each))], begin.dtype)
            for each in (begin, end)
        )
        whole = own_strided(tensor, first, last, strides, shrink_axis_mask=shrink_axis_mask & ~bits, **masks)
        begins, sizes = [0] * whole.shape.rank, whole.shape.as_list()
        # entries that are axes of `whole`
        left = [k for k in range(begin.shape[0]) if k in drawn or not single >> k & 1]
        axes = [_axis(k, left, masks.get("ellipsis_mask", 0)) for k in drawn]
        for k, axis in zip(drawn, axes, strict=True):
            begins[axis], sizes[axis] = tf.where(begin[k] < 0, begin[k] + sizes[axis], begin[k]), 1
        return tf.squeeze(dynamic(whole, tf.stack(begins), sizes), axes, name=name)

    return laid_over(gen_array_ops, _slice=cut, strided_slice=pick)


def _drawn(begin: Any, end: Any, single: int) -> list[int]:
    """The entries of a strided slice whose places are not known, if all of them are indices; else [].

    begin, end: (entries,). single: a mask of the entries that are indices."""
    if not tf.is_symbolic_tensor(begin) or begin.op.type == "Const":  # as most are: this takes no time
        return []
    places, ends = _known(begin), _known(end)
    if places is None or ends is None:
        return []
    unknown = [k for k, at in enumerate(zip(places, ends, strict=True)) if None in at]
    return unknown if all(single >> k & 1 for k in unknown) else []


def _known(tensor: Any) -> Any:
    """The numbers of a tensor or list, None for each that is not known."""
    return tf.get_static_value(tf.convert_to_tensor(tensor), partial=True)


def _axis(entry: int, left: list[int], ellipsis: int) -> int:
    """The axis that an entry of a strided slice makes; one behind the ellipsis is counted from the end.

    left: the entries that make axes. ellipsis: a mask of the entry that is an ellipsis, or 0."""
    return left.index(entry) - (len(left) if ellipsis & ((1 << entry) - 1) else 0)


def dynamic(tensor: Any, begin: Any, size: Any) -> Any:
    """The slice of the tensor at `begin`, (rank,), of `size`, (rank,) numbers."""
    from tensorflow.compiler.tf2xla.python import xla

    @tf.custom_gradient
    def run(tensor: Any) -> tuple[Any, Callable[[Any], Any]]:
        made = tf.ensure_shape(xla.dynamic_slice(tensor, begin, size), size)
        return made, lambda upstream: _in_zeros(upstream, begin, tensor)

    return run(tensor)


def _in_zeros(part: Any, begin: Any, like: Any) -> Any:
    """Zeros like `like`, with the part at `begin`. Its gradient is a slice: a gradient's penalty needs it."""
    from tensorflow.compiler.tf2xla.python import xla

    @tf.custom_gradient
    def run(part: Any) -> tuple[Any, Callable[[Any], Any]]:
        made = xla.dynamic_update_slice(tf.zeros_like(like), part, begin)
        return made, lambda upstream: dynamic(upstream, begin, part.shape)

    return run(part)
