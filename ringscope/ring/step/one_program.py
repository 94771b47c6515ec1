"""Compile a train step as one XLA program: on one rank alone, and on several ranks with the exchange inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from profiles.ground.errors import RingscopeError

from ..feed.carriers import opened
from ..forms import forms, optimizers
from ..global_batch import losses, normalization, totals
from ..gradients.aggregate import Update
from ..gradients.types import as_computed, size_bytes
from ..internals.frameworks import hvd, tf
from ..internals.laid_over import STAYS, laid_over
from ..models import ALIKE, UNEVEN, began_alike, kept, without_loss_scale
from .choose import Chooser, NotOneUpdate
from .exchange_inside import Inside

HELD = 8 << 20  # bytes; gradients of about this size share a barrier
Step = Callable[..., Any]
"""(data, kinds, True to compile) -> the step's logs."""


def compile_whole(model: Any, applies: Sequence[tuple[Any, Update]], chooser: Chooser, inside: Inside | None) -> None:
    """Replace `train_step`, whatever it does and with however many optimizers, by one XLA program.

    In two programs each gradient would be an output of the first. For each TensorFlow takes some 10 us of host time,
    and its address changes from step to step, so that XLA must update its CUDA graphs. An N-BEATS model then trains
    half as fast.
    """
    replace_train_step(model, taken_whole(model, model.train_step, applies, chooser, inside), chooser)


def replace_train_step(model: Any, step: Any, chooser: Chooser | None = None) -> None:
    """Make this function the model's train step. chooser: for a step that XLA may compile; the training loop (`Loop`)
    asks it for each batch."""
    step.by_ring, step.chooser = True, chooser
    model.train_step = step


def taken_whole(
    model: Any,
    train_step: Callable[[Any], Any],
    applies: Sequence[tuple[Any, Update]],
    chooser: Chooser,
    inside: Inside | None,
    *,
    refuses: bool = False,
) -> Step:
    """The train step in one program, compiled or not.

    applies: each optimizer with its own `apply`. inside: sums gradients over ranks within the program; None on one
    rank. refuses: True to raise NotOneUpdate for a step that cannot be one program, also if this rank does not compile
    it, so that all ranks do so; False: such a step runs if it is not compiled.
    """

    # XLA names the program after this function.
    def whole_step(data: Any, kinds: tuple[str, ...] | None, compiled: bool, ours: str) -> Any:
        is_bound = compiled or refuses
        if inside is not None:
            inside.begin(alike=ours == ALIKE, is_bound=is_bound)
            if is_bound and normalization.is_synchronised(model):
                raise NotOneUpdate("the train step makes more than one update and normalises over all ranks")
        with ExitStack() as stack:
            if compiled:
                stack.enter_context(forms(model))
            for optimizer, apply in applies:
                by_xla = compiled or (inside is not None and chooser.has_compiled)
                stack.enter_context(_applied(model, optimizer, apply, inside, compiled=compiled, by_xla=by_xla))
            share = totals.shared_inline if inside is None else partial(inside.total, compiled=compiled)
            batch = opened(data, kinds)
            stack.enter_context(joined_losses(model, inside is not None, share, ours, train_step, batch))
            logs = train_step(batch)
        if compiled:
            chooser.check(tf.compat.v1.get_default_graph())
        return logs

    compiled_by_xla = partial(tf.function, whole_step, autograph=False, jit_compile=True)
    program = compiled_by_xla()

    def forget() -> None:
        nonlocal program
        program = compiled_by_xla()

    chooser.traced.append(forget)

    def step(data: Any, kinds: tuple[str, ...] | None = None, compiled: bool = True) -> Any:
        ours = kept(model).batches
        if refuses and not compiled:  # traced before it runs, so that a refused step has no effect
            tf.function(whole_step, autograph=False).get_concrete_function(data, kinds, compiled, ours)
        return (program if compiled else whole_step)(data, kinds, compiled, ours)

    return step


def _applied(
    model: Any, optimizer: Any, apply: Update, inside: Inside | None, *, compiled: bool, by_xla: bool
) -> AbstractContextManager[None]:
    """Within this context, the optimizer's `apply` gets dense gradients of all ranks, and takes its short form for XLA.

    by_xla: True to let XLA compile the update even in a step that is not compiled, because other ranks may compile
    their steps, and XLA rounds differently.
    """
    from keras.src.backend import name_scope

    def taken(gradients: Sequence[Any], variables: Any = None) -> None:
        check_start(model)
        if not optimizer.built and variables:
            # Built outside the trace: if the trace is refused later, variables made in it are lost.
            with tf.init_scope(), name_scope(optimizer.name, caller=optimizer):
                optimizer.build(variables)
        if inside is not None:
            known = without_loss_scale(optimizer)
            gradients = inside.exchange(gradients, variables or known._trainable_variables, compiled=compiled)
        elif compiled:
            gradients = turned([None if g is None else tf.convert_to_tensor(g) for g in gradients])

        def update() -> None:
            with optimizers.short(optimizer) if by_xla else nullcontext():
                apply(gradients, variables)

        if by_xla and not compiled:
            program = tf.function(update, autograph=False, jit_compile=True)
            program.by_ring = True
            program()
        else:
            update()

    return laid_over(optimizer, apply=taken)


def turned(gradients: Sequence[Any]) -> list[Any]:
    """Gradients in the memory layout of their weights, before the update reads them; None stays None.

    On a GPU the gradient of a convolution kernel has another layout than the kernel. An update that transposes the
    gradient cannot write in place, so XLA would copy all weights.
    """
    from tensorflow.compiler.tf2xla.python import xla

    found = list(gradients)
    for places in _together(gradients):
        flat = xla.optimization_barrier(*(tf.reshape(as_computed(gradients[i]), [-1]) for i in places))
        for i, one in zip(places, flat, strict=True):
            found[i] = tf.cast(tf.reshape(one, gradients[i].shape), gradients[i].dtype)
    return found


def _together(gradients: Sequence[Any]) -> Iterator[list[int]]:
    """Yield groups of gradients, by their places, that need another memory layout; each group gets one barrier.

    One barrier for each gradient costs TensorFlow 4 ms before every first step, and with one for all XLA would hold all
    gradients at once.
    """
    group: list[int] = []
    held = 0
    for i, gradient in enumerate(gradients):
        if gradient is None or not gradient.shape.is_fully_defined() or gradient.shape.rank < 3:
            continue
        size = size_bytes(gradient)
        if group and held + size > HELD:
            yield group
            group, held = [], 0
        group.append(i)
        held += size
    if group:
        yield group


def check_start(model: Any) -> None:
    if not began_alike(model):
        raise RingscopeError(
            "the ranks began with different weights; call the model on a batch before ring.distribute(model), so "
            "that all weights exist, or ring.broadcast(model) before the first step"
        )


def join_losses(model: Any) -> None:
    """Replace the model's train step by one with the losses of the joined batch, which exchanges their denominators."""
    replace_train_step(model, in_joined_losses(model, model.train_step, reduces=True))


def in_joined_losses(model: Any, train_step: Callable[[Any], Any], *, reduces: bool) -> Callable[[Any], Any]:
    """The train step with the losses of the joined batch, which exchanges the losses' denominators."""

    def step(data: Any) -> Any:
        with joined_losses(model, reduces, totals.shared_inline, kept(model).batches, train_step, data):
            return train_step(data)

    return step


@contextmanager
def joined_losses(
    model: Any, reduces: bool, share: totals.Share, ours: str, train_step: Callable[[Any], Any], data: Any
) -> Iterator[None]:
    """Within this context, a train step is traced in one graph with the losses of the joined batch. ours: how the sizes
    of the ranks' batches compare (`Kept.batches`)."""
    ranks = hvd.size() if reduces else 1
    with (
        laid_over(kept(model), STAYS, in_step=True),
        functions_inlined(),
        losses.joined(model, ranks, share, train_step, data, uneven=ours == UNEVEN),
    ):
        yield


def functions_inlined() -> AbstractContextManager[None]:
    """Within this context, a tf.function that is called in a graph adds its operations to that graph. Ring's own
    functions do not.

    Otherwise each tf.function in a train step would have a graph of its own and keep it. Gradients caught in that graph
    could not be used outside, and a graph that was traced before the model was distributed, or for another kind of
    step, would be used again.
    """
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.eager.polymorphic_function import autograph_util
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    own = Function.__call__

    def call(function: Any, *given: Any, **options: Any) -> Any:
        if tf.executing_eagerly() or hasattr(function, "by_ring"):
            return own(function, *given, **options)
        if not function._autograph:
            return function.python_function(*given, **options)
        further = function._experimental_autograph_options
        python = autograph_util.py_func_from_autograph(function.python_function, further)
        # The step around it is traced without AutoGraph.
        with ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED, further):
            return python(*given, **options)

    return laid_over(Function, STAYS, __call__=call)
