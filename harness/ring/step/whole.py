"""A train step taken whole: with nothing to exchange in the middle of it, one program by XLA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from profiles.errors import RingscopeError

from .. import batches
from ..exchange import began_alike, hvd, tf
from ..feed import opened
from ..forms import forms, updates
from ..joined import losses
from .aggregated import Update
from .choose import Chooser, check_draws


def compile_whole(model: Any, applies: Sequence[tuple[Any, Update]], chooser: Chooser) -> None:
    """Replace `train_step`, whatever it does and with how many optimizers, by one XLA program, for a rank alone.

    In halves each gradient would be an output of the first, which costs TensorFlow some 10 us of the host's time a step
    and lies at another address each time, so that XLA updates its CUDA graphs: an N-BEATS trains half as fast then.

    applies: each optimizer with its own `apply`; the one that stands in its place serves steps that are not compiled.
    """
    plain = in_joined_losses(model, model.train_step, reduces=False)

    # XLA names the program by it.
    def whole_step(data: Any, kinds: tuple[str, ...] | None) -> Any:
        with ExitStack() as stack:
            stack.enter_context(forms(model))
            for optimizer, apply in applies:
                stack.enter_context(_applied(model, optimizer, apply))
            logs = plain(opened(data, kinds))
        check_draws(tf.compat.v1.get_default_graph())
        return logs

    program = tf.function(whole_step, autograph=False, jit_compile=True)

    def step(data: Any, kinds: tuple[str, ...] | None = None, compiled: bool = True) -> Any:
        return program(data, kinds) if compiled else plain(opened(data, kinds))

    step.by_ring = step.takes_carriers = True  # type: ignore[attr-defined]
    step.chooser = chooser  # type: ignore[attr-defined]
    model.train_step = step


@contextmanager
def _applied(model: Any, optimizer: Any, apply: Update) -> Iterator[None]:
    """While it lasts, gradients are dense and the optimizer's own `apply` takes them, in its short form."""

    def taken(gradients: Sequence[Any], variables: Any = None) -> None:
        check_start(model)
        with updates.short(optimizer):
            apply([None if g is None else tf.convert_to_tensor(g) for g in gradients], variables)

    reduced, optimizer.apply = optimizer.apply, taken
    try:
        yield
    finally:
        optimizer.apply = reduced


def check_start(model: Any) -> None:
    if not began_alike(model):
        raise RingscopeError(
            "the ranks began with weights of their own; build the model before ring.distribute(model), or call"
            " ring.broadcast(model) before the first step"
        )


def join_losses(model: Any) -> None:
    """Have the model's train step traced with the losses of the joined batch, exchanging inside it."""
    step = in_joined_losses(model, model.train_step, reduces=True)
    step.by_ring = True  # type: ignore[attr-defined]
    model.train_step = step


def in_joined_losses(model: Any, train_step: Callable[[Any], Any], *, reduces: bool) -> Callable[[Any], Any]:
    """The train step with the losses of the joined batch, which exchanges inside it."""

    def step(data: Any) -> Any:
        with joined_losses(model, reduces, losses.shared_inline, batches.told(model)):
            return train_step(data)

    return step


def joined_losses(model: Any, reduces: bool, share: losses.Share, ours: str) -> AbstractContextManager[None]:
    """While it lasts, a step is traced with them. ours: what the ranks' batches are to each other (`batches`)."""
    return losses.joined(model, hvd.size() if reduces else 1, share, uneven=ours == batches.UNEVEN)
