"""The update of Keras's most used optimizers, traced as one operation for each variable, with equal numbers.

Keras traces an update variable by variable, each with its own copy of the learning rate, bias corrections and
constants, through several layers of dispatch. An AdamW of 60 variables takes 0.2 s of CPU time in this form, 0.6 as the
14 to 20 operations of which its function consists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from ..models import without_loss_scale
from . import translated
from .choice import wanted

# Methods of Keras's optimizer that the short form leaves out, and those that it replaces: if the script has one of its
# own, Keras's form stays.
PARTS = ("update_step", "assign", "assign_add", "assign_sub", "_distributed_tf_update_step", "_use_weight_decay")
WHOLE = ("_backend_update_step", "_apply_weight_decay")


def short(optimizer: Any) -> AbstractContextManager[None]:
    """Within this context, this optimizer's `apply` is traced in the short form, if the optimizer is one of Keras's."""
    optimizer = without_loss_scale(optimizer)
    return laid_over(optimizer, **(_methods(optimizer) if wanted("optimizers") else {}))


def _methods(optimizer: Any) -> dict[str, Callable[..., None]]:
    """The methods that replace the optimizer's own; empty if the user has changed a part that matters."""
    from keras.optimizers import SGD, Adam, Optimizer

    steps = {Adam.update_step: adam, SGD.update_step: sgd}
    kind, own = type(optimizer), vars(optimizer)
    changed = [name for name in (*PARTS[1:], *WHOLE) if getattr(kind, name) is not getattr(Optimizer, name)]
    if changed or any(name in own for name in (*PARTS, *WHOLE)):
        return {}
    methods: dict[str, Callable[..., None]] = {"_apply_weight_decay": partial(decay, optimizer)}
    if kind.update_step in steps and not getattr(optimizer, "amsgrad", False):
        taken = partial(_dense, optimizer, optimizer._backend_update_step, steps[kind.update_step])
        methods["_backend_update_step"] = taken
    return methods


def _dense(
    optimizer: Any,
    otherwise: Callable[..., None],
    step: Callable[..., None],
    gradients: Sequence[Any],
    variables: Sequence[Any],
    learning_rate: Any,
) -> None:
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        otherwise(gradients, variables, learning_rate)
        return
    by_type: dict[Any, list[tuple[Any, Any]]] = {}
    for gradient, variable in zip(gradients, map(_inner, variables), strict=True):
        by_type.setdefault(variable.dtype, []).append((_cast(gradient, variable.dtype), variable))
    for dtype, pairs in by_type.items():
        step(optimizer, pairs, dtype, _cast(learning_rate, dtype))


def adam(optimizer: Any, pairs: Sequence[tuple[Any, Any]], dtype: Any, rate: Any) -> None:
    """`keras.optimizers.Adam.update_step` without amsgrad, in its order of operations, for (gradient, variable) pairs
    of one type."""
    step = _cast(optimizer.iterations + 1, dtype)
    powers = [tf.pow(_cast(beta, dtype), step) for beta in (optimizer.beta_1, optimizer.beta_2)]
    alpha = rate * tf.sqrt(1 - powers[1]) / (1 - powers[0])
    new = [tf.constant(1 - beta, dtype) for beta in (optimizer.beta_1, optimizer.beta_2)]
    epsilon = tf.constant(optimizer.epsilon, dtype)
    update = _one_operation(_adam)
    for gradient, variable in pairs:
        place = optimizer._get_variable_index(variable)
        slots = (_inner(slots[place]).handle for slots in (optimizer._momentums, optimizer._velocities))
        update(gradient, variable.handle, *slots, alpha, *new, epsilon)


def _adam(gradient: Any, variable: Any, mean: Any, square: Any, alpha: Any, *others: Any) -> None:
    new_mean, new_square, epsilon = others
    take = tf.raw_ops
    m, v = _read(mean, gradient.dtype), _read(square, gradient.dtype)
    m = take.AddV2(x=m, y=take.Mul(x=take.Sub(x=gradient, y=m), y=new_mean))
    v = take.AddV2(x=v, y=take.Mul(x=take.Sub(x=take.Square(x=gradient), y=v), y=new_square))
    take.AssignVariableOp(resource=mean, value=m)
    take.AssignVariableOp(resource=square, value=v)
    change = take.RealDiv(x=take.Mul(x=m, y=alpha), y=take.AddV2(x=take.Sqrt(x=v), y=epsilon))
    take.AssignSubVariableOp(resource=variable, value=change)


def sgd(optimizer: Any, pairs: Sequence[tuple[Any, Any]], dtype: Any, rate: Any) -> None:
    """`keras.optimizers.SGD.update_step`, in its order of operations."""
    take = tf.raw_ops
    momentum = _cast(optimizer.momentum, dtype)
    nesterov = _one_operation(_nesterov)
    for gradient, variable in pairs:
        if optimizer.momentum == 0:
            take.AssignSubVariableOp(resource=variable.handle, value=take.Mul(x=gradient, y=rate))
            continue
        slot = _inner(optimizer.momentums[optimizer._get_variable_index(variable)]).handle
        if optimizer.nesterov:
            nesterov(gradient, variable.handle, slot, rate, momentum)
        else:  # Nesterov's by this operation adds in another order
            given = {"lr": rate, "grad": gradient, "momentum": momentum}
            take.ResourceApplyKerasMomentum(var=variable.handle, accum=slot, **given)


def _nesterov(gradient: Any, variable: Any, slot: Any, rate: Any, momentum: Any) -> None:
    take = tf.raw_ops
    change = take.Mul(x=gradient, y=rate)
    m = take.Sub(x=take.Mul(x=_read(slot, gradient.dtype), y=momentum), y=change)
    take.AssignVariableOp(resource=slot, value=m)
    m = take.Sub(x=take.Mul(x=m, y=momentum), y=change)
    take.AssignAddVariableOp(resource=variable, value=m)


def decay(optimizer: Any, variables: Sequence[Any]) -> None:
    """`TFOptimizer._apply_weight_decay`, in its order of operations."""
    if optimizer.weight_decay is None:
        return
    known: dict[Any, tuple[Any, ...]] = {}
    for variable in map(_inner, variables):
        if not optimizer._use_weight_decay(variable):
            continue
        if variable.dtype not in known:
            learning_rate = _cast(optimizer.learning_rate, variable.dtype)
            share = _cast(optimizer.weight_decay, variable.dtype)
            known[variable.dtype] = _one_operation(_decay), share, learning_rate
        shrink, *factors = known[variable.dtype]
        shrink(variable.handle, *factors)


def _decay(variable: Any, share: Any, rate: Any) -> None:
    take = tf.raw_ops
    lost = take.Mul(x=take.Mul(x=_read(variable, share.dtype), y=share), y=rate)
    take.AssignSubVariableOp(resource=variable, value=lost)


def _one_operation(update: Callable[..., None]) -> Callable[..., None]:
    """`update` as one operation of a graph, a call of a function that is traced once for tensors of all shapes and of
    the types of the first call. XLA has the calls inlined, so its program stays the same."""
    body: Any = None

    def for_xla(*given: Any) -> None:
        with translated.in_functions():
            update(*given)

    def call(*given: Any) -> None:
        nonlocal body
        if tf.executing_eagerly():
            update(*given)
            return
        if body is None:
            of_any_shape = (tf.TensorSpec(None, each.dtype) for each in given)
            body = tf.function(for_xla, autograph=False).get_concrete_function(*of_any_shape)
        tf.raw_ops.StatefulPartitionedCall(args=given, Tout=[], f=body)

    return call


def _inner(variable: Any) -> Any:
    return variable if isinstance(variable, tf.Variable) else variable.value


def _read(handle: Any, dtype: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def _cast(value: Any, dtype: Any) -> Any:
    """Cast as Keras casts a hyperparameter: first to float32, even on its way to float64."""
    value = tf.convert_to_tensor(value)
    return value if value.dtype == dtype else tf.cast(value, dtype)
