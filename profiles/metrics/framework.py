"""Find the framework, gradient exchange and data loader that a program uses; the texts of findings depend on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from ..gpus.operations import Gpu
from ..model import marks
from ..model.names import fitting
from ..model.timeline import Timeline
from .kernels import TORCH_COMPILED

# The framework is the first whose pattern fits the name of a range, else the first whose pattern fits a kernel's name.
_RANGES = {
    # XLA's programs are named after the compiled function: `jit_train_step` by JAX, `cluster_0` by TensorFlow.
    "jax": r"^(?:PjitFunction|PjRt|PJRT_|jax\.)|\bmodule=(?:jit|pmap)_|\bhlo_module=(?:jit|pmap)_",
    "pytorch": r"^(?:aten::|autograd::|ProfilerStep#|Optimizer\.step#|FSDP::)|'mod': 'torch|torch\.nn|cudagraph_trees",
    "tensorflow": r"#edge_name=|^Horovod|^tf_Compute|ExecutorState::|EagerExecute|IteratorGetNext",
}
_KERNELS = {
    "pytorch": rf"at::native|at_cuda_detail|{TORCH_COMPILED}|^triton_",
    "tensorflow": r"tensorflow::|_GPU_DT_|EigenMetaKernel",
    "onnxruntime": r"onnxruntime::",
}
# Kernel names from XLA, which compiles for both TensorFlow and JAX.
_XLA = r"(?:^|_)fusion(?:_|\.|$)|^wrapped_"
_EXCHANGES = {
    "horovod": r"^Horovod",
    "fsdp": r"^FSDP::|FullyShardedDataParallel|_unshard",
    "ddp": r"DistributedDataParallel",
    "tf.distribute": r"NcclAllReduce|CollectiveReduceV|MirroredStrategy|CrossReplica",
}
# The marks that ring writes come first, then the frameworks' own ranges: tf.data runs Python code in the operations
# GeneratorDataset and PyFunc.
_LOADERS = {
    **{name: rf"^{marks.FED_BY}{re.escape(name)}$" for name in marks.LOADERS},
    "DataLoader in the training's process": r"^enumerate\(DataLoader\)#_SingleProcess",
    "DataLoader ": r"^enumerate\(DataLoader\)#",
    "generator ": r"\bGenerator(?:Dataset)?\b|\b(?:Eager)?PyFunc\b",
    "tf.data ": r"^(?:Iterator::|IteratorGetNext)|_IteratorGetNext#$",
}


def of(timelines: Sequence[Timeline], gpu: Gpu) -> str | None:
    """The framework: `pytorch`, `jax`, `tensorflow` or `onnxruntime`; `cuda` or `hip` without a framework; None if
    unknown."""
    if any(timelines[index].recording.format == "kineto" for index, _ in gpu.places):
        return "pytorch"
    if named := _first(_RANGES, _ranges(timelines, gpu)) or _first(_KERNELS, [gpu.names]):
        return named
    if any((timelines[index].marks["domain"] == marks.DOMAIN).any() for index, _ in gpu.processes):
        return "tensorflow"  # a training by ringscope bench
    if any(timelines[index].recording.format == "xplane" for index, _ in gpu.places):
        return None
    if fitting(gpu.names, _XLA).any():
        return None
    calls = (timelines[index].api["name"].cat.categories for index, _ in gpu.processes)
    return "hip" if any(fitting(names, "^hip[A-Z]").any() for names in calls) else "cuda"


def exchange(timelines: Sequence[Timeline], gpu: Gpu) -> str | None:
    """The library that exchanges gradients: `horovod`, `fsdp`, `ddp` or `tf.distribute`; None if no range shows one."""
    return _first(_EXCHANGES, _ranges(timelines, gpu))


def loader(timelines: Sequence[Timeline], gpu: Gpu) -> str | None:
    """The data loader: `tf.data`, `PyDataset`, `generator` (or a PyDataset), `arrays`, `DataLoader`,
    `DataLoader in the training's process`, `Grain`; None if no range shows it."""
    named = _first(_LOADERS, _ranges(timelines, gpu))
    return named and named.strip()


def _first(patterns: Mapping[str, str], names: Iterable[pd.Index]) -> str | None:
    """The first key whose pattern fits one of the names."""
    every = list(names)
    return next((key for key, pattern in patterns.items() if any(fitting(one, pattern).any() for one in every)), None)


def _ranges(timelines: Sequence[Timeline], gpu: Gpu) -> Iterator[pd.Index]:
    """The distinct names of ranges in each recording of the GPU."""
    for index in dict.fromkeys(index for index, _ in gpu.processes):
        yield timelines[index].marks["name"].cat.categories
