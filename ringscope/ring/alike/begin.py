"""Let ranks begin alike: each gets the weights and the optimizer's state of rank 0 before its first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from profiles.ground.errors import RingscopeError

from ..exchange import IN_STREAM, from_all, sent_as
from ..internals.frameworks import hvd, tf, traced_for_each_model
from ..models import kept, optimizers_of, parts_of, without_loss_scale


def broadcast(model: Any) -> None:
    """Give every rank rank 0's weights and optimizer state; the model must be built.

    Call it before the first step: Horovod's own callback broadcasts after the first batch, and so discards that step.
    Random generators (dropout) are made to differ by rank, because otherwise all ranks would drop the same units.
    Raises RingscopeError if the ranks' models differ, or if a trainable weight holds complex numbers.
    """
    _check_real(model)
    optimizers = optimizers_of(model)
    said = _everybodys(model, optimizers)
    # Rank 0's optimizer may be built because it was loaded with the model. An optimizer that no rank has built stays
    # unbuilt, because weights may still be unfrozen.
    for optimizer, built_for in zip(optimizers, said[0].built_for, strict=True):
        if built_for and not optimizer.built and built_for == len(model.trainable_variables):
            optimizer.build(model.trainable_variables)
    sharded = [parts for each in optimizers if (parts := parts_of(each)) is not None]
    apart = {id(variable) for parts in sharded for variable in parts.state()}
    state = [variable for each in optimizers for variable in each.variables if id(variable) not in apart]
    variables = {id(v): v for v in (*model.variables, *state)}.values()
    if hvd.size() > 1:
        _from_rank_0([v.value for v in variables])
    for parts in sharded:
        parts.from_rank_0()
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign(variable.value + tf.constant([hvd.rank(), 0], variable.value.dtype))
    kept(model).weights = len(model.weights)


def _check_real(model: Any) -> None:
    for weight in model.trainable_weights:
        if hvd.size() > 1 and tf.as_dtype(weight.dtype).is_complex:
            raise RingscopeError(
                f"{weight.path} is {weight.dtype}, and ranks cannot average gradients of complex numbers; hold its "
                "real and its imaginary part in two weights"
            )


class _Made(NamedTuple):
    """A rank's model as the script made it: [(path, shape, type)] of its variables, and the number of variables that
    each optimizer was built for."""

    variables: list[tuple[str, list[int], str]]
    built_for: list[int]


def _everybodys(model: Any, optimizers: Sequence[Any]) -> list[_Made]:
    """The models of all ranks, by rank. Raises RingscopeError if they differ, because ranks would then wait for each
    other forever."""
    own = [(variable.path, list(variable.shape), str(variable.dtype)) for variable in model.variables]
    made = _Made(own, [_built_for(each) for each in optimizers])
    said = from_all(made, "made") if hvd.size() > 1 else [made]
    same = "make the same model on all ranks; give random choices one seed, and let all ranks read the same file"
    for rank, other in enumerate(said):
        for (path, *kind), (its, *its_kind) in zip(said[0].variables, other.variables, strict=False):
            if kind != its_kind:
                was, is_now = (f"{shape} {dtype}" for shape, dtype in (kind, its_kind))
                raise RingscopeError(f"{path} is {was} on rank 0, and {its} is {is_now} on rank {rank}; {same}")
        counts = [(len(each.variables), len(each.built_for)) for each in (said[0], other)]
        if counts[0] != counts[1]:
            had, has = (f"{variables} variables and {found} optimizers" for variables, found in counts)
            raise RingscopeError(f"the model has {had} on rank 0, and {has} on rank {rank}; {same}")
    return said


def _built_for(optimizer: Any) -> int:
    """The number of variables that the optimizer was built for; 0 if it is not built."""
    inner = without_loss_scale(optimizer)
    return len(inner._trainable_variables) if optimizer.built else 0


@tf.function(autograph=False)
def _from_rank_0(variables: Sequence[Any]) -> None:
    for i, variable in enumerate(variables):
        bits = sent_as(variable.dtype)
        own = variable if bits == variable.dtype else tf.bitcast(variable, bits)
        sent = hvd.broadcast(own, root_rank=0, name=f"{IN_STREAM}_{i}")
        variable.assign(sent if bits == variable.dtype else tf.bitcast(sent, variable.dtype))


traced_for_each_model(_from_rank_0)
