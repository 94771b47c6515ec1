"""Observe a training by PyTorch, or by Keras on PyTorch, inside a rank's process: `ringscope doctor -- COMMAND`.

Only the outermost optimizer's calls count as steps, because a sharding wrapper calls another optimizer inside. Weights
are read when the next step begins, because some trainings change them after the optimizer's step: sharded optimizers
send the parts that each rank updated, other scripts average the weights.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from profiles.ground.after_import import once_imported
from profiles.ground.hooked import after, before

from . import hooks
from .observations import Told
from .samples import rows_of, values_of

REDUCES = (
    *("all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "all_to_all", "all_to_all_single"),
)
FEW = 64  # elements; a smaller tensor in a collective may hold a loss or a metric
Values = list[tuple[str, Any]]  # (name, tensor) of weights or buffers


class OfTorch:
    """Observes the training of one process by PyTorch."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._within = 0  # calls of optimizer.step() now under way, one inside the other
        self._taken: dict[int, int] = {}  # id of an optimizer -> its steps so far
        self._weights: Values = []
        self._others: Values = []  # module tensors that no gradient moves: BatchNorm's statistics, frozen weights
        self._drawn: dict[int, list[str]] = {}  # id of an iterator -> digests of the samples drawn since the last step
        self._last_loader = 0
        self._given: list[str] = []  # digests of the samples given to DDP since the last step
        self._ready: dict[str, Any] | None = None  # the record of the last step, still without the weights
        self._exchanged = self._most_exchanged = 0
        self._wrapped = self._called = 0
        self._numbers = 0  # collective calls on tensors of at most FEW elements
        self._workers = 1

    def watch(self) -> None:
        """Install the hooks of each part of PyTorch once the script has imported it."""
        for name, then in (
            ("torch.optim.optimizer", self._optimizers),
            ("torch.distributed.distributed_c10d", self._collectives),
            ("torch.nn.parallel.distributed", self._if_there("calls of DistributedDataParallel", self._ddp)),
            ("torch.utils.data.dataloader", self._if_there("samples of a DataLoader", self._loaders)),
            ("deepspeed.runtime.engine", self._if_there("steps of DeepSpeed", self._deepspeed)),
        ):
            once_imported([name], then)

    # ---- hooks

    def _if_there(self, seen: str, hook: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        return lambda module: hooks.lay(self._told, seen, lambda: hook(module))

    def _optimizers(self, optimizers: ModuleType) -> None:
        optimizers.register_optimizer_step_pre_hook(self._pre_step)
        optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: self._ended(optimizer))
        self._told.last.append(self._look)

    def _pre_step(self, optimizer: Any, *_: Any) -> None:
        groups = optimizer.param_groups
        self._begins(optimizer, lambda: [("", each) for group in groups for each in group["params"]])

    def _deepspeed(self, engines: ModuleType) -> None:
        """Count an engine's update as one step: it calls its optimizer once for each group of weights, and only then
        sends the ranks each other's parts."""
        before(engines.DeepSpeedEngine, "_take_model_step", lambda engine, *_, **__: self._begins(engine, list))
        after(engines.DeepSpeedEngine, "_take_model_step", lambda _, engine, *__, **___: self._ended(engine))

    def keras_is_there(self) -> None:
        """Hook Keras's optimizers, which are no subclasses of PyTorch's."""
        from keras.src.callbacks.callback_list import CallbackList
        from keras.src.optimizers.base_optimizer import BaseOptimizer

        apply = BaseOptimizer.apply

        @functools.wraps(apply)
        def applied(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            variables = trainable_variables and list(trainable_variables)
            self._begins(optimizer, lambda: [(v.path, v.value) for v in variables or optimizer._trainable_variables])
            result = apply(optimizer, grads, variables)
            self._ended(optimizer)
            return result

        def told(callbacks: Any, batch: int, logs: Any = None) -> None:
            found = {name: float(value) for name, value in (logs or {}).items()}
            if self._ready is not None:
                self._ready["logs"] = found

        BaseOptimizer.apply = applied
        before(CallbackList, "on_train_batch_end", told)
        self._told.last.append(self._look)

    def _collectives(self, c10d: ModuleType) -> None:
        def count(*arguments: Any, **options: Any) -> None:
            elements = max(map(_count, (*arguments, *options.values())), default=0)
            self._exchanged += elements
            self._numbers += 0 < elements <= FEW

        for name in REDUCES:
            if hasattr(c10d, name):
                before(c10d, name, count)

    def _ddp(self, distributed: ModuleType) -> None:
        import torch

        def begun(*_: Any, **__: Any) -> None:
            self._wrapped += 1

        def called(ddp: Any, *arguments: Any, **options: Any) -> None:
            if torch.is_grad_enabled():
                self._given += rows_of(list(_arrays((arguments, options)))) or []
                self._called += 1
                if ddp.require_backward_grad_sync:
                    self._exchanged += sum(each.numel() for each in ddp.parameters() if each.requires_grad)

        after(distributed.DistributedDataParallel, "__init__", begun)
        # `replicate` calls `_pre_forward`, but not `forward`
        before(distributed.DistributedDataParallel, "_pre_forward", called)

    def _loaders(self, loaders: ModuleType) -> None:
        def followed(batch: Any, iterator: Any) -> None:
            # the iterator used last before a step feeds this step; others may serve validation
            self._last_loader = id(iterator)
            self._drawn.setdefault(self._last_loader, []).extend(rows_of(list(_arrays(batch))) or [])
            self._workers = max(self._workers, getattr(iterator, "_num_workers", 1))

        after(loaders._BaseDataLoaderIter, "__next__", followed)

    # ---- steps

    def _begins(self, optimizer: Any, moved: Callable[[], Values]) -> None:
        """Note that an optimizer's step begins. moved: returns the (name or "", tensor) pairs of the weights that it
        updates."""
        self._within += 1
        if self._within > 1:
            return
        if not self._taken:
            self._meet(moved())
            self._told.write(self._line(0, None) | {"weights": _digests(self._weights)})
        # a GAN's second optimizer in a step does not count
        elif max(self._taken.values()) == self._taken.get(id(optimizer), 0):
            self._look()
        if id(optimizer) not in self._taken:
            self._meet(moved())
            self._taken[id(optimizer)] = 0

    def _meet(self, moved: Values) -> None:
        """Add an optimizer's weights, in its own order, which is the same on all ranks; also list the tensors that no
        gradient moves."""
        known = {id(tensor) for _, tensor in self._weights}
        names, others = _named()
        # DeepSpeed's optimizer holds parts of copies, not the weights
        if not any(name or id(tensor) in names for name, tensor in moved):
            moved = sorted((("", names[key][1]) for key in names), key=lambda pair: names[id(pair[1])][0])
        for name, tensor in moved:
            if id(tensor) not in known and tensor.requires_grad:
                self._weights.append((name or names.get(id(tensor), (f"weight {len(self._weights)}",))[0], tensor))
        self._others = sorted(others.values(), key=lambda pair: (pair[0], tuple(pair[1].shape)))

    def _ended(self, optimizer: Any) -> None:
        self._within -= 1
        if self._within:
            return
        self._taken[id(optimizer)] = self._taken.get(id(optimizer), 0) + 1
        step = max(self._taken.values())
        if self._taken[id(optimizer)] == step:
            self._most_exchanged = max(self._most_exchanged, self._exchanged)
            rows = self._drawn.get(self._last_loader) or self._given
            self._ready = self._line(step, rows or None)
            self._drawn, self._given, self._exchanged = {}, [], 0

    def _look(self) -> None:
        """Record the last step with the weights of now."""
        if self._ready is not None:
            line, self._ready = self._ready, None
            self._told.stepped(line | {"weights": _digests(self._weights), "buffers": _digests(self._others)})

    def _line(self, step: int, rows: list[str] | None) -> dict[str, Any]:
        import torch

        return {
            "kind": "step",
            "step": step,
            "elements": sum(each.numel() for _, each in self._weights),
            "sharded": sum(_is_sharded(*each) for each in self._weights),
            "exchanged": self._most_exchanged,
            "rows": rows,
            "workers": self._workers,
            "cores": sorted(os.sched_getaffinity(0)),
            "replicas": {"count": 1, "apart": None},
            "ring": False,
            "horovod": False,
            "exchanges_unseen": "horovod.torch" in sys.modules,
            "horovods_optimizer": False,
            "torch": {
                "group": torch.distributed.is_available() and torch.distributed.is_initialized(),
                "ddp": self._wrapped,
                "ddp_called": self._called,
                "numbers": self._numbers,
            },
        }


def _named() -> tuple[dict[int, tuple[str, Any]], dict[int, tuple[str, Any]]]:
    """(parameters that gradients move, all other tensors) of all modules: id of a tensor -> (its longest name, the
    tensor)."""
    from torch import nn

    moved: dict[int, tuple[str, Any]] = {}
    others: dict[int, tuple[str, Any]] = {}
    for module in gc.get_objects():
        if issubclass(type(module), nn.Module):
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                found = moved if tensor.requires_grad else others
                if len(name) >= len(found.get(id(tensor), ("",))[0]):
                    found[id(tensor)] = name.removeprefix("module."), tensor
    return moved, others


def _is_sharded(name: str, tensor: Any) -> bool:
    """True if each rank holds another part of this tensor: a DTensor, FSDP's FlatParameter, or a weight of ZeRO or
    Megatron."""
    placements = getattr(tensor, "placements", ())
    if placements:
        return not all(one.is_replicate() for one in placements)
    return (
        "_fsdp_wrapped_module" in name  # also the views into a flat parameter under use_orig_params
        or getattr(tensor, "_is_flat_param", False)
        or hasattr(tensor, "ds_id")
        or bool(getattr(tensor, "tensor_model_parallel", False))
    )


def _digests(tensors: Values) -> list[list[Any]]:
    """[name, digest of the bits, values at fixed places] of each tensor; sharded and empty tensors are left out."""
    found = []
    for name, tensor in tensors:
        if _is_sharded(name, tensor) or not tensor.numel():
            continue
        found.append([name, *values_of(_numpy(getattr(tensor, "to_local", lambda tensor=tensor: tensor)()))])
    return found


def _numpy(tensor: Any) -> Any:
    told = tensor.detach().cpu()
    try:
        return told.numpy()
    except TypeError:  # NumPy has no bfloat16; float32 holds its values exactly
        return told.float().numpy()


def _arrays(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for each in batch:
            yield from _arrays(each)
    elif hasattr(batch, "detach") and not batch.is_sparse:
        yield _numpy(batch)
    elif hasattr(batch, "shape"):
        yield batch


def _count(tensors: Any) -> int:
    if isinstance(tensors, (list, tuple)):
        return sum(map(_count, tensors))
    return int(tensors.numel()) if hasattr(tensors, "numel") else 0
