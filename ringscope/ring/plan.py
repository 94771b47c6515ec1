"""Plan how a model trains with the options of `ring.distribute`: by which kind of step, and how its gradients
travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from profiles.ground.errors import RingscopeError

from .alike import horovod_names
from .gradients import types
from .gradients.average import Exchange, average_gradients
from .gradients.wire import Outgoing
from .gradients.zero.sharded import check_sharded
from .internals.frameworks import tf
from .lost import launcher
from .models import is_seen, optimizers_of, used_by_step
from .options import Options
from .start import size
from .step import choose, exchange_inside


@dataclass(frozen=True, slots=True)
class Plan:
    """The kind of step, and the exchange of gradients, that the options choose for one model on these ranks."""

    options: Options
    step: str
    """`fit` or `compiled`."""
    why: str
    """The reason why `auto` chose this step; empty if the user chose it."""
    used: Sequence[Any]
    """The optimizers with which the model's own train step updates weights."""
    optimizers: Sequence[Any]
    """The optimizers that will average gradients: the model's, and those of its parts that do not average yet."""
    reduces: bool
    """True if ranks exchange gradients."""
    inside: bool
    """True if a compiled step exchanges gradients inside its one program."""
    whole: bool
    """True if a compiled step must be one program: it exchanges nothing, or has several optimizers."""

    @property
    def narrow(self) -> Any:
        """The type to which a compiled step's programs cast gradients; None: they do not cast.

        Inside the programs XLA fuses the casts. Outside, each cast is a kernel, and in a ResNet-50 step on H200s these
        took more than half of the time that the smaller exchange saved. A sum of several steps is not cast.
        """
        options = self.options
        is_narrowed = self.step == "compiled" and options.compression == "fp16" and options.aggregate == 1
        return tf.float16 if is_narrowed else None

    @property
    def exchange(self) -> Exchange:
        """A function that averages a step's gradients over the ranks."""
        options = self.options
        if not options.reduce:
            return lambda gradients, largest: list(gradients)
        return partial(
            average_gradients,
            compression="none" if self.narrow else options.compression,
            groups=options.groups,
            **self._summing,
            sparse_as_dense=options.sparse_as_dense or options.sharded,
        )

    @property
    def _summing(self) -> dict[str, Any]:
        options = self.options
        in_stream = self.step == "compiled"
        return {"in_stream": in_stream, "op": options.op, "predivide_factor": options.predivide_factor}

    def outgoing(self) -> Outgoing:
        """The form in which one update's gradients leave a compiled step's program."""
        options = self.options
        plain = self.reduces and options.is_plain
        keeps = plain and options.compression == "none"
        return Outgoing(
            keeps=keeps and types.summed_as(tf.bfloat16, **self._summing) == tf.bfloat16,
            narrow=self.narrow,
            as_rows=plain and options.compression in ("none", "fp32") and not options.sparse_as_dense,
            averages=options.op == "average",
            packs=self.reduces and options.op != "adasum",
        )

    @property
    def sends_as_computed(self) -> bool:
        """True if gradients can be exchanged while the program that computes them runs, because nothing more is done to
        them."""
        return self.options.is_plain and (self.options.compression == "none" or self.narrow is not None)

    @property
    def may_overlap(self) -> bool:
        is_wanted = self.step == "compiled" and self.reduces and self.options.overlap is not False
        return is_wanted and self.sends_as_computed and len(self.used) == 1


def planned(model: Any, options: Options) -> Plan:
    """Plan a model's training. Raises RingscopeError for a model that would not train right with these options."""
    own = optimizers_of(model, of_parts=False)
    used = used_by_step(model)
    reduces = options.reduce and size() > 1
    can_be_inside = exchange_inside.is_possible(options.op) and options.compression != "bf16" and options.groups == 1
    inside = reduces and options.is_plain and can_be_inside
    # Without exchange and gradient accumulation, a step is compiled as a whole, with everything that it does.
    whole = (options.aggregate == 1 and not reduces) or (inside and len(used) > 1)
    _check_optimizers(used)
    # Optimizers of inner models that are distributed already stay as they are.
    optimizers = own + [each for each in optimizers_of(model) if each not in own and not is_seen(each)]
    step, why = options.step, ""
    if step == "auto":
        step, why = choose.resolved(model, 1 if whole else len(used), options.groups)
    plan = Plan(options, step, why, used, optimizers, reduces, inside, whole)
    _check_step(model, plan)
    return plan


def _check_optimizers(used: Sequence[Any]) -> None:
    if not used:
        raise RingscopeError(
            "ring.distribute(model) needs a compiled model; call model.compile(...) first (for your own loop, "
            "model.compile(optimizer) is enough)"
        )
    if any(map(is_seen, used)):
        raise RingscopeError(
            "an optimizer of this model is distributed already, with this model or another one; call "
            "ring.distribute(model) once after each compile(), and give every model an optimizer of its own"
        )
    horovod_names.check_left_over(used)


def _check_step(model: Any, plan: Plan) -> None:
    options, used = plan.options, plan.used
    if options.step == "compiled" and len(used) > 1 and not plan.whole:
        raise RingscopeError(
            f"the model has {len(used)} optimizers, and step='compiled' supports several only if XLA itself can sum "
            "their gradients, by a Horovod with calls for XLA (scripts/build_horovod.py); use step='fit'"
        )
    if options.step == "compiled" and model.run_eagerly:
        raise RingscopeError(
            "the model runs eagerly (run_eagerly=True), and step='compiled' cannot do that; use step='fit'"
        )
    if options.sharded:
        others = {
            "op": (options.op, "average"),
            "predivide_factor": (options.predivide_factor, 1.0),
            "groups": (options.groups, 1),
            "reduce": (options.reduce, True),
            "elastic": (launcher.is_elastic(), False),
        }
        check_sharded(plan.optimizers, options.compression, **others)
    if options.overlap and not plan.sends_as_computed:
        raise RingscopeError(
            "overlap=True sends gradients as they are; leave out aggregate, sharded, predivide_factor, op='adasum' and"
            " compression='bf16' or 'fp32'"
        )
    if options.overlap and len(used) > 1:
        raise RingscopeError("overlap=True works only with one optimizer, and this model has several; leave it out")
