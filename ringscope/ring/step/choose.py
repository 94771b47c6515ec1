"""Choose whether XLA compiles a step: `step="auto"` chooses, prints its choice and the reason, and can fall back."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensorflow.python.eager import context as eager

from profiles.ground.errors import RingscopeError

from .. import say
from ..forms.rnn import layers as recurrent
from ..internals import xla_cache
from ..internals.frameworks import has_gpu, hvd, tf
from ..ranks.channel import Channel
from .checks import CompiledAnew, DrawsAlike, check
from .compile_time import expected
from .head import Head, NotBefore
from .retrace import traced_without_those_that_raise

NOT_DETERMINISTIC = (
    "the script asks for deterministic operations, but programs that earlier starts have cached may not be "
    "deterministic: call tf.config.experimental.enable_op_determinism() before ring.init(), or set "
    "RINGSCOPE_XLA_CACHE=off"
)
SHAPES = 8  # at most this many programs are compiled for one model; batches of further shapes train without XLA
MEET_S = 10.0  # seconds in which all ranks must find out that XLA refuses the step, for one line about it
AGAIN = 3  # times that XLA may compile a step again for batches of one shape; then it trains without XLA
COMPILED = 4, 2.0  # a later step has compiled if it takes a fourth of the first step's time, and 2 s at the least


class NotOneUpdate(RingscopeError):
    """A train step that applies gradients never, several times, or before its end: it cannot be compiled as two
    programs."""


# Lines that TensorFlow puts above an error's message, once for each function on the way to the error.
ABOVE = re.compile(r'Graph execution error:|Detected at node |<stack traces unavailable>|File "')
# An operation that TensorFlow's error says XLA cannot compile
WITHOUT_KERNEL = re.compile(r"No registered '(\w+)' OpKernel for XLA")
# A part of an error message to drop: the name of the function or node before the message
BESIDE = re.compile(r"^\s*\{\{\w+ [^}]*\}\} ?", re.MULTILINE)
# Errors that XLA raises for a step that it cannot compile. Out of memory is not among them.
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.NotFoundError,
    CompiledAnew,
    DrawsAlike,
    NotBefore,
    NotOneUpdate,
)
COST = "with one such layer a ResNet-50 on an H200 trained 12 times slower"  # 604 images/s with it, 7 813 without
# With this XLA option kernels that depend on each other run concurrently: a ViT on an H200 did not learn (docs/results,
# 2026-11-23).
TRAINS_WRONG = "xla_gpu_command_buffer_scheduling_mode=CONCURRENT"
Take = Callable[[bool], Any]
"""True to compile the step, or False -> the step's logs."""


def resolved(model: Any, optimizers: int, groups: int) -> tuple[str, str]:
    """The kind of step that step="auto" begins with for this model on this machine, and the reason."""
    from keras import layers

    if not has_gpu():
        return "fit", "no GPU here, and XLA is slower on a CPU"
    if model.run_eagerly:
        return "fit", "the model runs eagerly"
    if optimizers > 1:
        return "fit", f"the model has {optimizers} optimizers"
    if groups > 1:
        return "fit", "groups=k sends gradients in k parts during the backward pass, which needs step='fit'"
    for layer in model._flatten_layers(include_self=False):
        in_cudnn = isinstance(layer, (layers.LSTM, layers.GRU)) and recurrent.runs_in_cudnn(layer)
        if in_cudnn and not recurrent.fits(layer):
            return "fit", f"layer {layer.name} runs in cuDNN, which XLA cannot compile"
    return "compiled", "there is a GPU"


def check_options() -> None:
    """Raise RingscopeError if XLA_FLAGS holds an option with which a step trains wrongly."""
    if TRAINS_WRONG in os.environ.get("XLA_FLAGS", ""):
        raise RingscopeError(
            f"XLA_FLAGS holds --{TRAINS_WRONG}, with which compiled steps train wrongly; remove it, or use step='fit'"
        )


@contextmanager
def left_to_xla() -> Iterator[None]:
    """Within this context, tf.functions run without TensorFlow's own graph optimisation, which takes 2 to 4 s before
    the first step of a ResNet-50 or a ViT; XLA does that work in any case.

    The option is part of a call, so all calls of one function must have it. TensorFlow has only a private way to set it
    for one call; if that changes, the optimisation runs.
    """
    context = eager.context()
    before = getattr(context, "function_call_options", None)
    if before is None or not hasattr(eager, "FunctionCallOptions"):
        yield
        return
    context.function_call_options = _without_passes(before.executor_type, before.config_proto_serialized)
    try:
        yield
    finally:
        context.function_call_options = before


@functools.cache
def _without_passes(executor_type: str | None, config: bytes) -> Any:
    from tensorflow.core.protobuf import config_pb2

    settings = config_pb2.ConfigProto.FromString(config)
    settings.graph_options.rewrite_options.disable_meta_optimizer = True
    return eager.FunctionCallOptions(executor_type=executor_type, config_proto=settings)


class Chooser:
    """Runs each batch's step, compiled or not. The exchange does not depend on that, so one rank may train without XLA
    while the others compile.

    falls_back: True: a step that XLA refuses is trained without XLA; False: the error is raised. model: the model whose
    step it is; None if it has no layers that could run before the step. others: the connection to the other ranks.
    """

    def __init__(self, *, falls_back: bool, model: Any = None, others: Channel | None = None) -> None:
        self._falls_back, self._others = falls_back, others
        self.head = Head(model)
        self._known: dict[Hashable, bool] = {}
        self._refused = False
        self._first_s, self._again = 0.0, 0
        self._sized_by_batch = self._expected = ""
        self.traced: list[Callable[[], None]] = []
        """Functions that discard the traced step, so that it is traced again."""

    @property
    def has_compiled(self) -> bool:
        """True if this rank compiles batches of some shape. Other ranks may compile while this rank does not."""
        return any(self._known.values())

    def run(
        self, take: Take, leaves: Sequence[Any], shapes: Hashable = None, *, anew: Callable[[], None] = lambda: None
    ) -> Any:
        """Run one step. leaves: the batch's tensors. shapes: their shapes, if known. anew: discards what `take` has
        traced."""
        shape = shapes or tuple(_shape(leaf) for leaf in leaves)
        if self._known.get(shape) and self._sized_by_batch:
            return self._watched(take, shape)
        if shape in self._known:
            return take(self._known[shape])
        if self._wanted(leaves):
            if xla_cache.may_lack_determinism():
                say.once(NOT_DETERMINISTIC)
            try:
                kept = f"; later starts find it in {folder}" if (folder := xla_cache.folder()) else ""
                began_s = time.monotonic()
                with say.lasting("XLA compiles the step", then=lambda: self._expected + kept):
                    logs = self._compiled(take, anew)
                self._first_s = time.monotonic() - began_s
            except REFUSALS as error:
                if not self._falls_back:
                    if isinstance(error, RingscopeError) or "tf2xla" in str(error):
                        raise RingscopeError(
                            f"XLA does not compile this step ({_first_line(error)}); use step='auto' or step='fit'"
                        ) from error
                    raise
                because = f"XLA does not compile this step ({_first_line(error)})"
                self._refuse(because + price(self.head, str(error)), together=True)
            else:
                self._known[shape] = True
                return logs
        self._known[shape] = False
        return take(False)

    def _watched(self, take: Take, shape: Hashable) -> Any:
        """The logs of a compiled step that XLA compiles again for each batch of other numbers, also if these give the
        same size."""
        began_s = time.monotonic()
        logs = take(True)
        part, least_s = COMPILED
        if time.monotonic() - began_s < max(self._first_s / part, least_s):
            return logs
        self._again += 1
        kind = self._sized_by_batch
        why = (
            f"XLA compiles the step again for each batch, since {kind} takes a size or a place from the batch's numbers"
        )
        if self._again == 1:
            say.once(f"{why}; cut and pad batches in the data set's map() instead")
        if self._again == AGAIN and self._falls_back:
            self._refuse(f"{why}, and has done so {AGAIN} times")
            self._known[shape] = False
        return logs

    def _compiled(self, take: Take, anew: Callable[[], None]) -> Any:
        """The logs of the compiled step. Layers at the model's head that XLA refuses run before it from now on."""
        while True:
            try:
                with self.head.undone():
                    logs = traced_without_those_that_raise(lambda: take(True), lambda: self._trace_anew(anew))
            except REFUSALS as error:
                if not self.head.takes(named(self.head.layers, str(error))):
                    raise
                self._trace_anew(anew)
            else:
                self.head.tell()
                return logs

    def check(self, graph: Any) -> None:
        """Look at a traced step before XLA compiles it. Raises DrawsAlike or CompiledAnew (checks.py)."""
        self._sized_by_batch, self._expected = check(graph), expected(graph)

    def forget(self) -> None:
        """Discard the traced step, and what was found out about it: the model has another step now."""
        self._known.clear()
        self._refused, self._again = False, 0
        self._trace_anew(lambda: None)

    def _trace_anew(self, anew: Callable[[], None]) -> None:
        for forget in (anew, *self.traced):
            forget()

    def _wanted(self, leaves: Sequence[Any]) -> bool:
        strings = any(getattr(leaf, "dtype", None) == tf.string for leaf in leaves)
        strings = strings and not self.head.is_used and not self.head.takes(())
        if not self._falls_back:
            if strings:  # with strings XLA would end the process
                raise RingscopeError("a batch holds strings, which XLA does not support; use step='auto' or step='fit'")
            return True
        if not self._refused and strings:
            why = self.head.why_not and f"; layers of strings cannot run before the step: {self.head.why_not}"
            self._refuse(f"a batch holds strings, which XLA does not support{why}", together=True)
        if not self._refused and len(self._known) == SHAPES:
            self._refuse(f"batches come in more than {SHAPES} shapes; shapes seen so far stay compiled")
        return not self._refused

    def _refuse(self, why: str, *, together: bool = False) -> None:
        """together: True if the other ranks probably refuse it now as well; rank 0 then says so for all."""
        self._refused = True
        alike = re.sub(r"\d", "", why)  # the numbers in TensorFlow's names differ between ranks
        met = self._others.meet("without XLA", alike, limit_s=MEET_S) if together and self._others else None
        text = f"training without XLA: {why}"
        if met is None or set(met) != {alike}:
            say.line(f"rank {hvd.rank()}: {text}")
        elif hvd.rank() == 0:
            say.line(text)


def price(head: Head, error: str) -> str:
    """Words on the cost, if the error names a layer: because of this one layer the whole step is not compiled."""
    names = ", ".join(dict.fromkeys(f"{layer.name} ({type(layer).__name__})" for layer in named(head.layers, error)))
    if not names:
        return ""
    why = f" (it cannot run before the step: {head.why_not})" if head.why_not else ""
    return (
        f"; because of {names} the whole step is not compiled{why}, {COST}; move that work into the data set's map() "
        "if it needs no trained weights, else write it with operations that XLA compiles"
    )


def named(layers: Sequence[Any], error: str) -> list[Any]:
    """The layers whose operations XLA's error names."""
    return [layer for path in re.findall(r"\{\{node ([^}]+)\}\}", error) for layer in _on(path, layers)]


def _on(path: str, layers: Sequence[Any]) -> list[Any]:
    """[the innermost layer on an operation's path], or [] if there is none; in a path, numbers may follow a layer's
    name."""
    for name in reversed(path.split("/")):
        of_it = [layer for layer in layers if re.fullmatch(re.escape(layer.name) + r"(_\d+)*", name)]
        if of_it:
            return [max(of_it, key=lambda layer: len(layer.name))]
    return []


def _shape(leaf: Any) -> Hashable:
    return tuple(leaf.shape) if isinstance(leaf, tf.Tensor) else str(getattr(leaf, "shape", None))


def _first_line(error: Exception) -> str:
    if lacking := dict.fromkeys(WITHOUT_KERNEL.findall(str(error))):
        return f"XLA has no kernel for {', '.join(lacking)}"
    text = BESIDE.sub("", str(getattr(error, "message", error)))
    lines = [line for line in map(str.strip, text.splitlines()) if line and not ABOVE.match(line)]
    return next((line for line in lines if "nsupported" in line or "XLA" in line), lines[0] if lines else "")[:300]
