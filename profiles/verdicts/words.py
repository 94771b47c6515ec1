"""What to change, in the words of the framework that made the kernels; Keras's on TensorFlow stand in the rules.

PyTorch's stand in `pytorch`; of others those that a recording may refute in `conditions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..model.measures import Finding, GpuMeasures
from ..runs.records import Cell
from . import conditions, of_strategy, pytorch
from .case import PLAIN
from .collectives import MOSTLY_WAITING
from .pytorch import TORCH_KERNEL, Words

JAX_AHEAD = "jax.device_put of the next batch before this step's result is asked for"
JAX: Mapping[str, Words] = {
    "checkpoint-in-the-loop": "save less often, to a local disk; orbax's AsyncCheckpointer, which writes from another "
    "thread",
    "off-tensor-cores": conditions.jax_tensor_cores,
    "not-compiled": "jax.jit around the whole step",
    "unfused-batch-norm": "jax.jit around the whole step",
    "generic-rnn-cell": "a larger batch and hidden size; jax.lax.scan(unroll=8)",
    "launch-bound": conditions.jax_launches,
    "python-in-the-loop": conditions.jax_python,
    "graphs-updated-every-step": "donate_argnums, so that buffers stay where they are; else without command buffers "
    "(XLA_FLAGS=--xla_gpu_enable_command_buffer=)",
    "short-kernels": conditions.jax_short,
    "tiny-batch": "a larger batch until samples/s stop growing",
    "input-pipeline-slow": "batches made in threads or processes of their own (grain, tf.data), two ahead of the step",
    "no-prefetch": JAX_AHEAD,
    "prefetch-on-host-only": JAX_AHEAD,
    "copies-pageable": JAX_AHEAD + "; NumPy arrays that are reused, aligned to 64 bytes",
    "copies-synchronous": JAX_AHEAD,
    "copies-exposed-although-prefetched": "fewer bytes: images as uint8, scaled in the step",
    "copies-exposed": JAX_AHEAD + "; fewer bytes: images as uint8, scaled in the step",
    "copies-to-host-exposed": "results kept on the device; what must come back by copy_to_host_async, while the next "
    "call runs",
    "copies-on-gpu-exposed": "donate_argnums, so that state is updated where it is; no transposes or concatenations of "
    "whole arrays between the calls",
    "small-copy-before-step": "small arrays made in the step, or put on the device with the batch",
    "memory-allocated-in-the-loop": "XLA's allocator: no XLA_PYTHON_CLIENT_ALLOCATOR=platform",
    "loss-fetched-every-step": "keep losses on the device, float(loss) every hundredth step; what every call must give "
    "back with copy_to_host_async, while the next one runs",
    "host-synchronises": "no block_until_ready, float() or np.asarray() of a result per step",
    "cpu-may-be-faster": "compare: the same script with JAX_PLATFORMS=cpu; else a larger batch",
    "all-reduce-exposed": conditions.jax_all_reduce,
    "collectives-exposed": f"{conditions.HIDE}; a larger batch; other mesh axes",
    "collectives-not-fused": "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=... above the gradients' bytes",
    "model-too-small": "a larger batch, or fewer GPUs",
    "threads-oversubscribed": "fewer processes per host, or one process for all its GPUs",
}
CUDA: Mapping[str, Words] = {
    "off-tensor-cores": conditions.cuda_tensor_cores,
    "launch-bound": conditions.cuda_launches,
    "python-in-the-loop": conditions.cuda_host,
    "graphs-updated-every-step": "buffers that stay where they are, or a graph per set of buffers",
    "short-kernels": conditions.cuda_short,
    "input-pipeline-slow": "read and make the next input in another thread while the GPU works",
    "no-prefetch": conditions.cuda_input_ahead,
    "prefetch-on-host-only": conditions.cuda_ahead,
    "small-copy-before-step": "small inputs as arguments of the kernel, or copied with the others",
    "copies-pageable": "pinned memory: cudaMallocHost, or cudaHostRegister of what there is",
    "copies-synchronous": conditions.cuda_ahead,
    "copies-exposed-although-prefetched": "fewer bytes",
    "copies-exposed": conditions.cuda_copies,
    "copies-to-host-exposed": "cudaMemcpyAsync into pinned memory on a stream of its own, while the next kernels run; "
    "fewer bytes",
    "copies-on-gpu-exposed": "work in place, or swap pointers in place of copying one buffer into another",
    "memory-allocated-in-the-loop": "cudaMallocAsync and cudaFreeAsync, or buffers that are kept",
    "loss-fetched-every-step": "copy results back less often, and asynchronously",
    "host-synchronises": conditions.cuda_waits,
    "all-reduce-exposed": "the collective on a stream of its own while other kernels run",
    "copies-between-gpus": "compute first what others need (the edges of a domain), and copy it on a stream of its own "
    "while the rest is computed; fewer, larger copies",
    "collectives-exposed": "compute first what others need, and exchange it on a stream of its own while the rest is "
    "computed",
    "collectives-not-fused": "ncclGroupStart and ncclGroupEnd around them, or one over a larger buffer",
}
_HIP = (
    ("cudaMallocHost", "hipHostMalloc"), ("CUDA", "HIP"), ("cuda", "hip"), ("; programmatic dependent launch", ""),
)  # fmt: skip


def _of_hip(change: str) -> str:
    for name, other in _HIP:
        change = change.replace(name, other)
    return change


BOUND = "IOBinding: inputs and outputs as OrtValues on the device (onnxruntime's run_with_iobinding)"
ONNXRUNTIME: Mapping[str, Words] = {
    **CUDA,
    "launch-bound": "enable_cuda_graph of the CUDA provider, with IOBinding; a larger batch; ORT_ENABLE_ALL",
    "python-in-the-loop": "enable_cuda_graph of the CUDA provider, with IOBinding; a larger batch; what the host does "
    "between runs in another thread",
    "short-kernels": "graph_optimization_level ORT_ENABLE_ALL; float16; a larger batch",
    **dict.fromkeys(("no-prefetch", "prefetch-on-host-only", "copies-pageable"), BOUND),
    "copies-synchronous": BOUND,
    "copies-exposed": BOUND + "; fewer bytes",
    "copies-to-host-exposed": BOUND + "; fewer bytes",
    "loss-fetched-every-step": BOUND + "; a loss only every hundredth step",
    "host-synchronises": BOUND + "; several runs under way, each in a thread",
}
DISTRIBUTED = (
    "strategy.experimental_distribute_dataset with tf.distribute.InputOptions(experimental_fetch_to_device=True), and "
    "dataset.prefetch(tf.data.AUTOTUNE)"
)
# Under a strategy jit_compile=True ends in an error (keras-team/keras#17187).
COMPILED_ELSEWHERE = (
    "Horovod in the place of the strategy, under which XLA does not compile the step of model.fit; or Keras on JAX, "
    "with keras.distribution.DataParallel"
)
TENSORFLOW = {
    "not-compiled": COMPILED_ELSEWHERE,
    "launch-bound": f"a larger batch; steps_per_execution in model.compile; {COMPILED_ELSEWHERE}",
    "short-kernels": f"a larger batch; {COMPILED_ELSEWHERE}",
    "tiny-batch": "a larger batch until samples/s stop growing, and the learning rate with it",
    "no-prefetch": DISTRIBUTED,
    "prefetch-on-host-only": DISTRIBUTED,
    "copies-pageable": DISTRIBUTED,
    "copies-synchronous": DISTRIBUTED,
    "copies-exposed": DISTRIBUTED + "; fewer bytes: images as uint8",
    "copies-exposed-although-prefetched": "fewer bytes: images as uint8, other features as float16",
    "all-reduce-exposed": "mixed precision; a larger batch; tf.distribute.NcclAllReduce",
    "collectives-not-fused": "tf.distribute.experimental.CommunicationOptions(bytes_per_pack=...)",
    "model-too-small": "a larger batch, or fewer GPUs",
}
# Of programs that train nothing.
TRAINING_ONLY = frozenset(
    {"not-compiled", "unfused-batch-norm", "generic-rnn-cell", "tiny-batch", "cpu-may-be-faster", "model-too-small"}
)
# For a training, not for an inference.
NOT_OF_INFERENCE = frozenset({"unfused-batch-norm", "model-too-small", "gradients-not-compressed"})
BY_FRAMEWORK: Mapping[str, Mapping[str, Words]] = MappingProxyType(
    {"pytorch": pytorch.TRAINING, "jax": JAX, "cuda": CUDA, "hip": CUDA, "onnxruntime": ONNXRUNTIME}
)


def said(finding: Finding, gpu: GpuMeasures, *, exchange: str | None, cell: Cell | None) -> Finding | None:
    """The finding with the change in the words of the GPU's framework; None where it has no place there.

    exchange: what carries gradients between the GPUs. cell: that the harness ran; its settings are the words.
    """
    framework = "pytorch" if made_kernels(gpu) else gpu.framework
    if cell is not None:
        changes = pytorch.TRAINING if framework == "pytorch" else TENSORFLOW if exchange == "tf.distribute" else {}
        return of_strategy.said(_changed(finding, changes, gpu), cell)
    if framework in (*PLAIN, "onnxruntime") and finding.code in TRAINING_ONLY:
        return None
    if gpu.steps.unit == "batch" and finding.code in NOT_OF_INFERENCE:
        return None
    if framework == "tensorflow":
        return _changed(finding, TENSORFLOW, gpu) if exchange == "tf.distribute" else finding
    if framework == "pytorch" and finding.code == "not-compiled" and pytorch.recurrent(gpu):
        return None
    if framework == "pytorch" and gpu.steps.unit == "batch":
        own = pytorch.SERVER if gpu.steps.served else pytorch.INFERENCE
        return _changed(finding, {**pytorch.TRAINING, **own}, gpu)
    finding = _changed(finding, BY_FRAMEWORK.get(framework or "", {}), gpu)
    return replace(finding, change=_of_hip(finding.change)) if framework == "hip" else finding


def made_kernels(gpu: GpuMeasures) -> bool:
    """Do the kernels that take most of the time bear names of PyTorch or of its compiler?"""
    return any(TORCH_KERNEL.search(kernel.name) for kernel in gpu.kernels.top)


def _changed(finding: Finding, changes: Mapping[str, Words], gpu: GpuMeasures) -> Finding:
    words = changes.get(finding.code)
    if words is None:
        return finding
    change = words if isinstance(words, str) else words(gpu)
    return replace(finding, change=f"{MOSTLY_WAITING}; {change}" if MOSTLY_WAITING in finding.change else change)
