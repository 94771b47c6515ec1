"""Find the framework that launched a GPU's work, and what exchanges its gradients: findings' words depend on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from ..gpus.operations import Gpu
from ..model import marks
from ..model.names import fitting
from ..model.timeline import Timeline
from .kernels import TORCH_COMPILED

# By ranges, then by kernels; the first that has any.
_RANGES = {
    # XLA's programs bear the name of what was compiled: of JAX `jit_train_step`, of TensorFlow `cluster_0`.
    "jax": r"^(?:PjitFunction|PjRt|PJRT_|jax\.)|\bmodule=(?:jit|pmap)_|\bhlo_module=(?:jit|pmap)_",
    "pytorch": r"^(?:aten::|autograd::|ProfilerStep#|Optimizer\.step#|FSDP::)|'mod': 'torch|torch\.nn|cudagraph_trees",
    "tensorflow": r"#edge_name=|^Horovod|^tf_Compute|ExecutorState::|EagerExecute|IteratorGetNext",
}
_KERNELS = {
    "pytorch": rf"at::native|at_cuda_detail|{TORCH_COMPILED}|^triton_",
    "tensorflow": r"tensorflow::|_GPU_DT_|EigenMetaKernel",
    "onnxruntime": r"onnxruntime::",
}
# Both TensorFlow's and JAX's compiler makes them.
_XLA = r"(?:^|_)fusion(?:_|\.|$)|^wrapped_"
_EXCHANGES = {
    "horovod": r"^Horovod",
    "fsdp": r"^FSDP::|FullyShardedDataParallel|_unshard",
    "ddp": r"DistributedDataParallel",
    "tf.distribute": r"NcclAllReduce|CollectiveReduceV|MirroredStrategy|CrossReplica",
}
# Marks of ring, then names of the frameworks: tf.data calls Python's functions in operations of these names.
_LOADERS = {
    **{name: rf"^{marks.FED_BY}{re.escape(name)}$" for name in marks.LOADERS},
    "DataLoader in the training's process": r"^enumerate\(DataLoader\)#_SingleProcess",
    "DataLoader ": r"^enumerate\(DataLoader\)#",
    "generator ": r"\bGenerator(?:Dataset)?\b|\b(?:Eager)?PyFunc\b",
    "tf.data ": r"^(?:Iterator::|IteratorGetNext)|_IteratorGetNext#$",
}


def of(timelines: Sequence[Timeline], gpu: Gpu) -> str | None:
    """`pytorch`, `jax`, `tensorflow`, `onnxruntime`, `cuda` or `hip` (none of these), or None: it cannot be told."""
    if any(timelines[index].recording.format == "kineto" for index, _ in gpu.places):
        return "pytorch"
    if named := _first(_RANGES, _ranges(timelines, gpu)) or _first(_KERNELS, [gpu.names]):
        return named
    if any((timelines[index].marks["domain"] == marks.DOMAIN).any() for index, _ in gpu.processes):
        return "tensorflow"  # the harness's own training
    if any(timelines[index].recording.format == "xplane" for index, _ in gpu.places):
        return None
    if fitting(gpu.names, _XLA).any():
        return None
    calls = (timelines[index].api["name"].cat.categories for index, _ in gpu.processes)
    return "hip" if any(fitting(names, "^hip[A-Z]").any() for names in calls) else "cuda"


def exchange(timelines: Sequence[Timeline], gpu: Gpu) -> str | None:
    """`horovod`, `fsdp`, `ddp` or `tf.distribute`, by their ranges; None where there are none of them."""
    return _first(_EXCHANGES, _ranges(timelines, gpu))


def loader(timelines: Sequence[Timeline], gpu: Gpu) -> str | None:
    """The maker of its batches: `tf.data`, `PyDataset`, `generator` (or a PyDataset), `arrays`, `DataLoader`,
    `DataLoader in the training's process`, `Grain`; None: nothing tells."""
    named = _first(_LOADERS, _ranges(timelines, gpu))
    return named and named.strip()


def _first(patterns: Mapping[str, str], names: Iterable[pd.Index]) -> str | None:
    """The first key whose pattern fits one of the names."""
    every = list(names)
    return next((key for key, pattern in patterns.items() if any(fitting(one, pattern).any() for one in every)), None)


def _ranges(timelines: Sequence[Timeline], gpu: Gpu) -> Iterator[pd.Index]:
    """The distinct names of ranges of each recording that the GPU lies in."""
    for index in dict.fromkeys(index for index, _ in gpu.processes):
        yield timelines[index].marks["name"].cat.categories
