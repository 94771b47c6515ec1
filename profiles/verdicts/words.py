"""What to change, in the words of the framework that made the kernels; Keras's on TensorFlow stand in the rules.

PyTorch's by the names of its performance tuning guide and of the references of DataLoader, torch.compile,
DistributedDataParallel and its communication hooks (docs.pytorch.org); JAX's by its documentation of jit, transfers and
XLA's GPU flags (docs.jax.dev).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ..measures import Finding, GpuMeasures
from ..metrics.kernels import TORCH_COMPILED
from ..records import Cell
from . import of_strategy
from .case import PLAIN
from .collectives import MOSTLY_WAITING

TORCH_KERNEL = re.compile(rf"at::native|{TORCH_COMPILED}")
AHEAD = (
    "DataLoader(pin_memory=True), then batch.to(device, non_blocking=True) for the next batch on a torch.cuda.Stream "
    "of its own while this one computes"
)
FEWER_LAUNCHES = (
    'torch.compile(model, mode="reduce-overhead") (CUDA graphs; in Keras model.compile(jit_compile=True)), an '
    "optimizer with fused=True, a larger batch"
)
LESS_PYTHON = (
    "the optimizer's step in a torch.compile of its own, or fused=True; less Python around the compiled model: hooks, "
    "callbacks, logging; a larger batch"
)
# Where torch.compile has made kernels, or CUDA graphs run.
COMPILED = {
    "launch-bound": f'mode="reduce-overhead" of torch.compile (CUDA graphs), where it is not set; {LESS_PYTHON}',
    "python-in-the-loop": f'mode="reduce-overhead" of torch.compile (CUDA graphs), where it is not set; {LESS_PYTHON}',
}
# Where cuDNN runs recurrent layers.
GRAPHED = (
    "a larger batch; torch.cuda.make_graphed_callables (CUDA graphs), since torch.compile leaves torch.nn.LSTM and "
    "torch.nn.GRU as they are"
)
RECURRENT = {code: GRAPHED for code in COMPILED}
IN_GRAPHS = {code: f"what is left outside of the CUDA graphs: {LESS_PYTHON}" for code in COMPILED}
PYTORCH = {
    "not-compiled": "torch.compile(model); in Keras model.compile(jit_compile=True)",
    "launch-bound": FEWER_LAUNCHES,
    "python-in-the-loop": FEWER_LAUNCHES + "; less Python between the steps: hooks, callbacks, logging",
    "short-kernels": 'torch.compile(model, mode="max-autotune"), memory_format=torch.channels_last, a larger batch',
    "tiny-batch": "a larger batch until samples/s stop growing, and the learning rate with it",
    "generic-rnn-cell": "torch.nn.LSTM or torch.nn.GRU over whole sequences in place of LSTMCell and GRUCell in a loop",
    "input-pipeline-slow": "DataLoader(num_workers=the cores of a rank, persistent_workers=True, prefetch_factor=4); "
    "smaller images in the files; decode and augment on the GPU",
    "no-prefetch": AHEAD,
    "prefetch-on-host-only": AHEAD,
    "copies-pageable": "DataLoader(pin_memory=True) and batch.to(device, non_blocking=True)",
    "copies-synchronous": "batch.to(device, non_blocking=True) from pinned memory (DataLoader(pin_memory=True))",
    "copies-exposed-although-prefetched": AHEAD,
    "copies-exposed": AHEAD + "; fewer bytes: images as uint8, scaled on the GPU; keep there what every step needs",
    "copies-to-host-exposed": "results kept on the GPU and copied less often, in one piece: non_blocking=True into "
    "pinned memory while the next step runs; activations that are offloaded to the host on a stream of their own",
    "copies-on-gpu-exposed": "no copies of whole tensors in the step (.contiguous(), .clone(), torch.cat): results "
    "written where they are used (out=); gradient_as_bucket_view=True of DistributedDataParallel; torch.compile",
    "small-copy-before-step": "make small tensors on the device (torch.full(..., device=...)), or copy them with the "
    "batch, from pinned memory and non_blocking",
    "memory-allocated-in-the-loop": "PyTorch's caching allocator: no PYTORCH_NO_CUDA_MEMORY_CACHING (on AMD "
    "PYTORCH_NO_HIP_MEMORY_CACHING), no torch.cuda.empty_cache() in the loop",
    "loss-fetched-every-step": "loss.item(), .cpu() and print every hundredth step; sum metrics on the GPU; no boolean "
    "indexing, and no tensor in an if: each fetches a number",
    "checkpoint-in-the-loop": "save less often, to a local disk; torch.distributed.checkpoint.async_save, which "
    "copies the weights and writes them from another thread",
    "off-tensor-cores": 'float32: torch.set_float32_matmul_precision("high") (TF32), or torch.autocast with bfloat16; '
    "batch, channels, units and classes in multiples of 8 for 16-bit numbers, of 16 for 8-bit ones",
    "host-synchronises": "no .item(), .cpu(), boolean indexing or torch.cuda.synchronize() in every step; batches from "
    "pinned memory with non_blocking=True, since the host waits for copies from other memory",
    "cpu-may-be-faster": "compare: the same script with CUDA_VISIBLE_DEVICES= ; else a larger batch",
    "all-reduce-exposed": "DistributedDataParallel with fp16_compress_hook or bf16_compress_hook, "
    "gradient_as_bucket_view=True, bucket_cap_mb tried; no_sync() while gradients accumulate; a larger batch",
    "collectives-not-fused": "a larger bucket_cap_mb of DistributedDataParallel (25 by default)",
    "copies-between-gpus": "DistributedDataParallel in place of DataParallel; layers on as few GPUs as hold them "
    "(device_map)",
    "model-too-small": "a larger batch, gradients accumulated under no_sync(), or fewer GPUs",
    "threads-oversubscribed": "torch.set_num_threads(cores // local ranks) or OMP_NUM_THREADS; fewer num_workers",
}


JAX_AHEAD = "jax.device_put of the next batch before this step's result is asked for"
JAX_JIT = "jax.jit around the whole step with donate_argnums; several steps in one call (jax.lax.scan); a larger batch"
JAX = {
    "checkpoint-in-the-loop": "save less often, to a local disk; orbax's AsyncCheckpointer, which writes from another "
    "thread",
    "off-tensor-cores": 'jax.config.update("jax_default_matmul_precision", "tensorfloat32"), or bfloat16; batch, '
    "channels, units and classes in multiples of 8 for 16-bit numbers, of 16 for 8-bit ones",
    "not-compiled": "jax.jit around the whole step",
    "unfused-batch-norm": "jax.jit around the whole step",
    "generic-rnn-cell": "a larger batch and hidden size; jax.lax.scan(unroll=8)",
    "launch-bound": JAX_JIT,
    "python-in-the-loop": JAX_JIT + "; no float(loss) or block_until_ready per step",
    "graphs-updated-every-step": "donate_argnums, so that buffers stay where they are; else without command buffers "
    "(XLA_FLAGS=--xla_gpu_enable_command_buffer=)",
    "short-kernels": "jax.jit around the whole step; a larger batch",
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
    "all-reduce-exposed": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true; 16-bit gradients; a larger batch",
    "collectives-exposed": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true; a larger batch; other mesh axes",
    "collectives-not-fused": "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=... above the gradients' bytes",
    "model-too-small": "a larger batch, or fewer GPUs",
    "threads-oversubscribed": "fewer processes per host, or one process for all its GPUs",
}
CUDA_AHEAD = "cudaMemcpyAsync from pinned memory (cudaMallocHost) on a stream of its own, while kernels run"
CUDA = {
    "off-tensor-cores": "TF32 or 16-bit numbers in matrix products (cublasSetMathMode), and sizes in multiples of 8",
    "launch-bound": "launch ahead of the GPU; fewer, larger kernels; a CUDA graph of what repeats",
    "python-in-the-loop": "move what the host computes between launches to another thread, or launch ahead of it; "
    "a CUDA graph of what repeats",
    "graphs-updated-every-step": "buffers that stay where they are, or a graph per set of buffers",
    "short-kernels": "fuse kernels; a CUDA graph of what repeats; programmatic dependent launch",
    "input-pipeline-slow": "read and make the next input in another thread while the GPU works",
    "no-prefetch": f"read and make the next input in another thread; {CUDA_AHEAD}",
    "prefetch-on-host-only": CUDA_AHEAD,
    "small-copy-before-step": "small inputs as arguments of the kernel, or copied with the others",
    "copies-pageable": "pinned memory: cudaMallocHost, or cudaHostRegister of what there is",
    "copies-synchronous": CUDA_AHEAD,
    "copies-exposed-although-prefetched": "fewer bytes",
    "copies-exposed": CUDA_AHEAD + "; keep on the GPU what is needed again; fewer bytes",
    "copies-to-host-exposed": "cudaMemcpyAsync into pinned memory on a stream of its own, while the next kernels run; "
    "fewer bytes",
    "copies-on-gpu-exposed": "work in place, or swap pointers in place of copying one buffer into another",
    "memory-allocated-in-the-loop": "cudaMallocAsync and cudaFreeAsync, or buffers that are kept",
    "loss-fetched-every-step": "copy results back less often, and asynchronously",
    "host-synchronises": "launch what comes next before waiting; cudaStreamWaitEvent in place of cudaDeviceSynchronize",
    "all-reduce-exposed": "the collective on a stream of its own while other kernels run",
    "copies-between-gpus": "what others need first (the edges of a domain), and its copy on a stream of its own while "
    "the rest is computed; fewer, larger copies",
    "collectives-exposed": "what others need first, and its exchange on a stream of its own while the rest is computed",
    "collectives-not-fused": "ncclGroupStart and ncclGroupEnd around them, or one over a larger buffer",
}
_HIP = (
    ("cudaMallocHost", "hipHostMalloc"), ("CUDA", "HIP"), ("cuda", "hip"), ("; programmatic dependent launch", ""),
)  # fmt: skip


def _of_hip(change: str) -> str:
    for name, other in _HIP:
        change = change.replace(name, other)
    return change


HIP = {code: _of_hip(change) for code, change in CUDA.items()}
BOUND = "IOBinding: inputs and outputs as OrtValues on the device (onnxruntime's run_with_iobinding)"
ONNXRUNTIME = CUDA | {
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
SERVED = {
    "launch-bound": 'CUDA graphs for decoding (torch.compile(mode="reduce-overhead"); vLLM has them without '
    "enforce_eager, SGLang with --cuda-graph-bs); larger batches",
    "python-in-the-loop": "nothing, while no request was there; else CUDA graphs for decoding, and the scheduler ahead "
    "of the GPU (SGLang's overlap schedule, vLLM's async scheduling); larger batches",
    "host-synchronises": "the next batch scheduled before the tokens of the last one are fetched (vLLM's async "
    "scheduling, SGLang's overlap schedule); no .item() or .cpu() between layers",
    "short-kernels": "CUDA graphs; fused kernels (torch.compile, or the server's own); larger batches",
    "copies-pageable": "pinned host memory (torch.empty(..., pin_memory=True)) and .to(device, non_blocking=True)",
    "copies-synchronous": ".to(device, non_blocking=True) from pinned memory (torch.empty(..., pin_memory=True))",
    "copies-exposed": "the next batch's inputs copied while this one computes; fewer bytes",
    "copies-to-host-exposed": "tokens or scores copied back, not logits; while the next batch computes",
    "copies-on-gpu-exposed": "caches and inputs written where they are used, in place of copies of whole tensors",
    "tiny-batch": "more requests per batch",
    "collectives-exposed": "fewer GPUs per replica; results gathered less often, or while the next batch computes",
    "not-compiled": "torch.compile or the server's CUDA graphs",
    "all-reduce-exposed": "fewer GPUs per replica (tensor parallel), the server's custom all-reduce, larger batches",
}
# Options of `ringscope bench` in the rules' words -> what the user of a script changes, in this order.
IN_A_SCRIPT = (
    (" (--per-rank-batch)", ""),
    ("raise --per-rank-batch until images/s stops growing", "a larger batch until samples/s stop growing"),
    ("(--compression fp16)", "(ring.distribute(model, compression='fp16'))"),
    ("ring.distribute(model, compression='fp16') (ring.distribute(model, compression='fp16'))",
     "ring.distribute(model, compression='fp16')"),
    ("--aggregate 2", "ring.distribute(model, aggregate=2)"),
    ("--aggregate 4", "ring.distribute(model, aggregate=4)"),
    ('ring.distribute(model, step="compiled"), --step compiled;', 'ring.distribute(model, step="compiled");'),
    ("(--step compiled)", '(ring.distribute(model, step="compiled"))'),
    ("ringscope bench --feeds pinned (model.fit after ring.distribute(model) does it for any data)",
     "model.fit after ring.distribute(model) does it for any data"),
    ("prefetch to the device (ringscope bench --feeds pinned)",
     "copies ahead of the steps: model.fit after ring.distribute(model) makes them"),
    (" (ringscope bench --feeds device), or pinned staging buffers (--feeds pinned)",
     ", or pinned staging buffers: model.fit after ring.distribute(model) has them"),
    ("(ringscope bench --feeds pinned)", "(model.fit after ring.distribute(model) does it)"),
    (" (ringscope bench --input-dtype uint8)", ""),
    ("compare: CUDA_VISIBLE_DEVICES= ringscope bench with the same model and batch",
     "compare: the same script with CUDA_VISIBLE_DEVICES= "),
    (" (--feeds resident)", ": the same batch in every step"),
)  # fmt: skip
# Of programs that train nothing.
TRAINING_ONLY = frozenset(
    {"not-compiled", "unfused-batch-norm", "generic-rnn-cell", "tiny-batch", "cpu-may-be-faster", "model-too-small"}
)
# Of a training, not of an inference.
NOT_OF_INFERENCE = frozenset({"unfused-batch-norm", "model-too-small", "gradients-not-compressed"})
BY_FRAMEWORK: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"pytorch": PYTORCH, "jax": JAX, "cuda": CUDA, "hip": HIP, "onnxruntime": ONNXRUNTIME}
)


def said(finding: Finding, gpu: GpuMeasures, *, exchange: str | None, cell: Cell | None) -> Finding | None:
    """The finding with the change in the words of the GPU's framework; None where it has no place there.

    exchange: what carries gradients between the GPUs. cell: that the harness ran; its settings are the words.
    """
    framework = "pytorch" if made_kernels(gpu) else gpu.framework
    if cell is not None:
        of_framework = PYTORCH if framework == "pytorch" else TENSORFLOW if exchange == "tf.distribute" else {}
        return of_strategy.said(_changed(finding, of_framework), cell)
    if framework in (*PLAIN, "onnxruntime") and finding.code in TRAINING_ONLY:
        return None
    if gpu.steps.unit == "batch":
        if finding.code in NOT_OF_INFERENCE:
            return None
        if finding.code in SERVED and framework == "pytorch":
            return _in_a_script(_changed(finding, SERVED))
    if framework == "tensorflow":
        return _in_a_script(_changed(finding, TENSORFLOW) if exchange == "tf.distribute" else finding)
    if framework == "pytorch" and finding.code == "not-compiled" and _recurrent(gpu):
        return None
    if framework == "hip":  # what has no words of CUDA's own may still name its calls
        finding = replace(finding, change=_of_hip(finding.change))
    return _in_a_script(_changed(finding, {**BY_FRAMEWORK.get(framework or "", {}), **_compiled(framework, gpu)}))


def _recurrent(gpu: GpuMeasures) -> bool:
    return bool(gpu.kernels.groups.get("rnn_cell", {}).get("count"))


def _compiled(framework: str | None, gpu: GpuMeasures) -> Mapping[str, str]:
    """Changes of a PyTorch program that is compiled already, or replays CUDA graphs."""
    if framework != "pytorch":
        return {}
    if gpu.kernels.graph_launches or gpu.kernels.graph_nodes:
        return IN_GRAPHS
    if _recurrent(gpu):
        return RECURRENT
    return COMPILED if gpu.kernels.groups.get("fused", {}).get("count") else {}


def _in_a_script(finding: Finding) -> Finding:
    """The finding without options of `ringscope bench`, which a script has not."""
    change, refuted_by = finding.change, finding.refuted_by
    for option, own in IN_A_SCRIPT:
        change, refuted_by = change.replace(option, own), refuted_by.replace(option, own)
    return replace(finding, change=change, refuted_by=refuted_by)


def made_kernels(gpu: GpuMeasures) -> bool:
    """Do the kernels that take most of the time bear names of PyTorch or of its compiler?"""
    return any(TORCH_KERNEL.search(kernel.name) for kernel in gpu.kernels.top)


def _changed(finding: Finding, changes: Mapping[str, str]) -> Finding:
    change = changes.get(finding.code)
    if change is None:
        return finding
    return replace(finding, change=f"{MOSTLY_WAITING}; {change}" if MOSTLY_WAITING in finding.change else change)
