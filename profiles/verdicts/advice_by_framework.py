"""Choose the advice of a finding by the framework that made the kernels. The rules contain the advice for Keras on
TensorFlow; `pytorch`, `pytorch_inference`, `jax` and `cuda_hip` (CUDA, HIP) contain the advice for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..metrics.doubts import PLAIN
from ..model.findings import Finding
from ..model.measures import GpuMeasures
from ..runs.records import Cell
from . import advice_by_strategy, cuda_hip, jax, pytorch, pytorch_inference
from .collectives import MOSTLY_WAITING
from .copies import FEWER_BYTES
from .gpu_facts import Words, recurrent
from .pytorch import TORCH_KERNEL

BOUND = "IOBinding: inputs and outputs as OrtValues on the device (onnxruntime's run_with_iobinding)"
ONNXRUNTIME: Mapping[str, Words] = {
    **cuda_hip.CUDA.changes(),
    "launch-bound": "enable_cuda_graph of the CUDA provider, with IOBinding; a larger batch; ORT_ENABLE_ALL",
    "python-in-the-loop": "enable_cuda_graph of ONNX Runtime's CUDA provider, with IOBinding; a larger batch; "
    "or move the host's work between runs into another thread",
    "short-kernels": "graph_optimization_level ORT_ENABLE_ALL; float16; a larger batch",
    "tiny-batch": "a larger batch; several runs at once, each in a thread",
    **dict.fromkeys(("no-prefetch", "prefetch-on-host-only", "copies-pageable"), BOUND),
    "copies-synchronous": BOUND,
    "copies-exposed": BOUND + "; fewer bytes",
    "copies-to-host-exposed": BOUND + "; fewer bytes",
    "loss-fetched-every-step": BOUND + "; fetch the loss only every hundredth step",
    "host-synchronises": BOUND + "; start several runs at once, each in a thread",
}
DISTRIBUTED = (
    "strategy.experimental_distribute_dataset with tf.distribute.InputOptions(experimental_fetch_to_device=True), and "
    "dataset.prefetch(tf.data.AUTOTUNE)"
)
# Under a tf.distribute strategy jit_compile=True raises an error (keras-team/keras#17187).
COMPILED_ELSEWHERE = (
    "Horovod instead of the strategy, under which XLA does not compile the step of model.fit; or Keras on JAX, "
    "with keras.distribution.DataParallel"
)
TENSORFLOW = {
    "not-compiled": COMPILED_ELSEWHERE,
    "launch-bound": f"a larger batch; steps_per_execution in model.compile; {COMPILED_ELSEWHERE}",
    "short-kernels": f"a larger batch; {COMPILED_ELSEWHERE}",
    "tiny-batch": "a larger batch until samples/s stop growing, and a learning rate that grows with it",
    "no-prefetch": DISTRIBUTED,
    "prefetch-on-host-only": DISTRIBUTED,
    "copies-pageable": DISTRIBUTED,
    "copies-synchronous": DISTRIBUTED,
    "copies-exposed": DISTRIBUTED + "; send fewer bytes: images as uint8",
    "copies-exposed-although-prefetched": FEWER_BYTES,
    "all-reduce-exposed": "mixed precision; a larger batch; tf.distribute.NcclAllReduce",
    "collectives-not-fused": "tf.distribute.experimental.CommunicationOptions(bytes_per_pack=...)",
    "model-too-small": "a larger batch, or fewer GPUs",
}
# Codes of findings that do not apply to plain CUDA or HIP programs and to ONNX Runtime.
TRAINING_ONLY = frozenset(
    {"not-compiled", "unfused-batch-norm", "generic-rnn-cell", "cpu-may-be-faster", "model-too-small"}
)
# Codes of findings that do not apply to inference.
NOT_OF_INFERENCE = frozenset({"unfused-batch-norm", "model-too-small", "gradients-not-compressed"})
BY_FRAMEWORK: Mapping[str, Mapping[str, Words]] = MappingProxyType(
    {
        "pytorch": pytorch.TRAINING,
        "jax": jax.TRAINING,
        "cuda": cuda_hip.CUDA.changes(),
        "hip": cuda_hip.HIP.changes(),
        "onnxruntime": ONNXRUNTIME,
    }
)


def said(finding: Finding, gpu: GpuMeasures, *, exchange: str | None, cell: Cell | None) -> Finding | None:
    """The finding with advice for the GPU's framework; None if the finding does not apply to that framework. `exchange`
    is the library that exchanges gradients between GPUs. `cell` is set if `ringscope bench` ran the program."""
    framework = "pytorch" if made_kernels(gpu) else gpu.framework
    if cell is not None:
        changes = pytorch.TRAINING if framework == "pytorch" else TENSORFLOW if exchange == "tf.distribute" else {}
        return advice_by_strategy.said(_changed(finding, changes, gpu), cell)
    if framework in (*PLAIN, "onnxruntime") and finding.code in TRAINING_ONLY:
        return None
    if gpu.steps.unit == "batch" and finding.code in NOT_OF_INFERENCE:
        return None
    if framework == "tensorflow":
        return _changed(finding, TENSORFLOW, gpu) if exchange == "tf.distribute" else finding
    if framework == "pytorch" and finding.code == "not-compiled" and recurrent(gpu):
        return None
    if framework == "pytorch" and gpu.steps.unit == "batch":
        own = pytorch_inference.SERVER if gpu.steps.served else pytorch_inference.INFERENCE
        return _changed(finding, {**pytorch.TRAINING, **own}, gpu)
    return _changed(finding, BY_FRAMEWORK.get(framework or "", {}), gpu)


def made_kernels(gpu: GpuMeasures) -> bool:
    """True if the name of any of the longest kernels shows that PyTorch or torch.compile made it."""
    return any(TORCH_KERNEL.search(kernel.name) for kernel in gpu.kernels.top)


def _changed(finding: Finding, changes: Mapping[str, Words], gpu: GpuMeasures) -> Finding:
    words = changes.get(finding.code)
    if words is None:
        return finding
    change = words if isinstance(words, str) else words(gpu)
    return replace(finding, change=f"{MOSTLY_WAITING}; {change}" if MOSTLY_WAITING in finding.change else change)
