"""The advice for each finding in a PyTorch program. A remedy that the recording refutes is left out.

Sources: PyTorch's performance tuning guide, the references of DataLoader, torch.compile, DistributedDataParallel and
its communication hooks (docs.pytorch.org), and the documentation of vLLM and SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..gpus.collective_kernels import names_collective
from ..metrics.kernels import TORCH_COMPILED
from ..metrics.peaks import lacks_tf32
from ..model.measures import GpuMeasures
from ..model.operations import Copies
from .case import CONVOLUTIONS
from .collectives import is_sharded, summed_as
from .compute import misaligned, on_cuda_cores
from .host_waits import mostly_after_waits
from .small_batches import UNFILLED_SHARE

TORCH_KERNEL = re.compile(rf"at::native|{TORCH_COMPILED}")
Words = str | Callable[[GpuMeasures], str]

LESS_PYTHON = (
    "the optimizer's step in a separate torch.compile, or fused=True; less Python around the compiled model: hooks, "
    "callbacks, logging; a larger batch"
)
FEWER_LAUNCHES = (
    'torch.compile(model, mode="reduce-overhead") (CUDA graphs; in Keras model.compile(jit_compile=True)), an '
    "optimizer with fused=True, a larger batch"
)
REDUCED = f'mode="reduce-overhead" of torch.compile (CUDA graphs), where it is not set; {LESS_PYTHON}'
# The advice where cuDNN runs recurrent layers.
GRAPHED = (
    "a larger batch; torch.cuda.make_graphed_callables (CUDA graphs), since torch.compile leaves torch.nn.LSTM and "
    "torch.nn.GRU as they are"
)
PINNED = "pinned host memory (torch.empty(..., pin_memory=True)) and .to(device, non_blocking=True)"
ON_DEVICE = (
    "make small tensors on the device (torch.full(..., device=...)), or copy them with the batch, from pinned memory "
    "and non_blocking"
)
# Copies of fewer bytes than this on average carry numbers of the host, not batches.
_SMALL_BYTES = 1024
_MOST = 0.1  # A waiting call that causes at least this share of the sync idle gets its own remedy.
# PyTorch operator in which the host waits for the GPU -> remedy.
_NO_WAIT = {
    "aten::item": ".item() every hundredth step, and sums on the GPU until then",
    "aten::_local_scalar_dense": ".item() every hundredth step, and sums on the GPU until then",
    "aten::is_nonzero": "no tensor in an if",
    "aten::nonzero": "no boolean indexing or nonzero(): torch.where, or a mask",
}


def recurrent(gpu: GpuMeasures) -> bool:
    return bool(gpu.kernels.groups.get("rnn_cell", {}).get("count"))


def in_graphs(gpu: GpuMeasures) -> bool:
    return bool(gpu.kernels.graph_launches or gpu.kernels.graph_nodes)


def compiled(gpu: GpuMeasures) -> bool:
    """True if torch.compile made any of the kernels."""
    return bool(gpu.kernels.groups.get("fused", {}).get("count"))


def pageable(gpu: GpuMeasures) -> bool:
    """True if batches are copied from pageable memory, or if the recording does not name the kind of memory."""
    share = gpu.copies["h2d"].pageable_share
    return share is None or share >= 0.5


def _launches(gpu: GpuMeasures) -> str:
    if in_graphs(gpu):
        return f"outside of the CUDA graphs: {LESS_PYTHON}"
    return GRAPHED if recurrent(gpu) else REDUCED if compiled(gpu) else FEWER_LAUNCHES


def _after_waits(gpu: GpuMeasures) -> str:
    """Advice if the host launches late mostly because of its own work after a wait for the GPU; else ""."""
    late = mostly_after_waits(gpu)
    return (
        ("move the host's work after a wait to a separate thread, or do it once the next step is launched; ")
        if late
        else ""
    )


def _python(gpu: GpuMeasures) -> str:
    plain = not (in_graphs(gpu) or recurrent(gpu) or compiled(gpu))
    return (
        _after_waits(gpu)
        + _launches(gpu)
        + ("; less Python between the steps: hooks, callbacks, logging" if plain else "")
    )


def _short(gpu: GpuMeasures) -> str:
    autotuned = "" if compiled(gpu) else 'torch.compile(model, mode="max-autotune"), '
    channels = "memory_format=torch.channels_last, " if _of_images(gpu) else ""
    return f"{autotuned}{channels}a larger batch"


def _of_images(gpu: GpuMeasures) -> bool:
    return any(CONVOLUTIONS.search(kernel.name) for kernel in gpu.kernels.top)


def _ahead(gpu: GpuMeasures) -> str:
    pinned = "DataLoader(pin_memory=True), then " if pageable(gpu) else ""
    return (
        f"{pinned}batch.to(device, non_blocking=True) for the next batch on a separate torch.cuda.Stream while this "
        "one computes"
    )


# FSDP may keep weights on the host; it then copies each layer's weights to the GPU.
OFFLOADED = (
    "keep weights on the GPU, not on the host (FSDP without CPUOffload), where memory allows; else forward_prefetch, "
    "so that the next layer's weights are copied while this one computes"
)


def _offloaded(gpu: GpuMeasures) -> str:
    pinned = "pinned memory (pin_memory: true), and " if pageable(gpu) else ""
    return (
        "keep them on the GPU where memory allows: DeepSpeed without offload_optimizer and offload_param, FSDP without "
        "CPUOffload, torch.utils.checkpoint in the place of save_on_cpu, an optimizer with 8-bit states, more GPUs to "
        f"shard over; else {pinned}copies on a stream of their own while other layers compute"
    )


def _inputs(gpu: GpuMeasures) -> str:
    if gpu.exchange == "fsdp":
        return OFFLOADED
    return "copy the next batch's inputs while this one computes; send fewer bytes"


def _fewer_bytes(gpu: GpuMeasures) -> str:
    if gpu.exchange == "fsdp" and not pageable(gpu):
        return OFFLOADED
    images = "images as uint8, scaled on the GPU" if _of_images(gpu) else "16-bit features"
    return f"{_ahead(gpu)}; send fewer bytes: {images}; keep data that every step needs on the GPU"


def _loader(gpu: GpuMeasures) -> str:
    workers = "DataLoader(num_workers=the cores of a rank, persistent_workers=True, prefetch_factor=4)"
    if gpu.loader == "DataLoader in the training's process":
        workers += ": it makes batches in the training's own process now (num_workers=0)"
    elif gpu.loader == "DataLoader":
        workers = (
            "a larger num_workers of the DataLoader, up to the cores of a rank; prefetch_factor=4; less work per sample"
        )
    images = "; smaller images in the files; decode and augment on the GPU" if _of_images(gpu) else ""
    return workers + images


def _waits(gpu: GpuMeasures) -> str:
    """Advice on waits of the host for the GPU, for the calls that wait in this recording."""
    known = [one for one in gpu.host_waits if one["call"]]
    total = sum(one["ns"] for one in known)
    parts: dict[str, None] = {}
    for one in known:
        if one["ns"] < _MOST * total:
            continue
        if one["within"] in _NO_WAIT:
            parts[_NO_WAIT[one["within"]]] = None
        elif one["moves"] == "h2d":
            parts[
                ON_DEVICE
                if _small(gpu.copies["h2d"])
                else "copy batches from pinned memory with non_blocking=True, since the host waits for copies from "
                "other memory"
            ] = None
        elif one["moves"] == "d2h":
            parts[
                "copy results back less often (.cpu(), .numpy(), print), with non_blocking=True into pinned memory"
            ] = None
        else:
            parts["no torch.cuda.synchronize() and no other wait for the GPU in every step"] = None
    return "; ".join(parts) or "no .item(), .cpu(), boolean indexing or torch.cuda.synchronize() in every step"


def _small(copies: Copies) -> bool:
    return copies.bytes is not None and copies.bytes < _SMALL_BYTES * (copies.count or 0)


SIZES = "batch, channels, units and classes in multiples of 8 for 16-bit numbers, of 16 for 8-bit ones"


def in_float32(gpu: GpuMeasures) -> bool:
    """True if the longest matrix products run in float32 and not on the tensor cores."""
    found = (misaligned(kernel.name, gpu.name) for kernel in gpu.kernels.top)
    return on_cuda_cores(next(filter(None, found), ""), gpu.name)


def _tensor_cores(gpu: GpuMeasures) -> str:
    """Advice on tensor cores: TF32 if matrix products run in float32, else sizes that are multiples of 8."""
    if in_float32(gpu) and lacks_tf32(gpu.name):
        return "torch.autocast with float16, and torch.amp.GradScaler; this GPU has neither TF32 nor bfloat16"
    if in_float32(gpu):
        return 'float32: torch.set_float32_matmul_precision("high") (TF32), or torch.autocast with bfloat16'
    return SIZES


def _all_reduce(gpu: GpuMeasures) -> str:
    accumulated = "no_sync() while gradients accumulate; a larger batch"
    if gpu.exchange not in (None, "ddp") or is_sharded(gpu):
        return "send gradients in half the bytes; take a larger batch, which needs fewer all-reduces per sample"
    hooks = "" if summed_as(gpu) == "16 bits" else " with fp16_compress_hook or bf16_compress_hook,"
    return f"DistributedDataParallel{hooks} gradient_as_bucket_view=True, another bucket_cap_mb; {accumulated}"


def _joined(gpu: GpuMeasures) -> str:
    """Advice for kernels of few thread blocks; "" if the recording does not show such kernels."""
    if gpu.kernels.unfilled is None or gpu.kernels.unfilled.lost_ns < UNFILLED_SHARE * gpu.span_ns:
        return ""
    return "; join small operations (torch.bmm, foreach=True of the optimizer); CUDA graphs make no kernel larger"


TRAINING: Mapping[str, Words] = MappingProxyType(
    {
        "not-compiled": "torch.compile(model); in Keras model.compile(jit_compile=True)",
        "launch-bound": _launches,
        "python-in-the-loop": _python,
        "short-kernels": _short,
        "tiny-batch": lambda gpu: (
            f"a larger batch until samples/s stop growing, and a learning rate that grows with it{_joined(gpu)}"
        ),
        "generic-rnn-cell": "torch.nn.LSTM or torch.nn.GRU over whole sequences instead of LSTMCell and GRUCell in a "
        "loop",
        "input-pipeline-slow": _loader,
        "no-prefetch": _ahead,
        "prefetch-on-host-only": _ahead,
        "copies-pageable": "DataLoader(pin_memory=True) and batch.to(device, non_blocking=True)",
        "copies-synchronous": "batch.to(device, non_blocking=True) from pinned memory (DataLoader(pin_memory=True))",
        "copies-exposed-although-prefetched": _ahead,
        "copies-exposed": _fewer_bytes,
        "copies-to-host-exposed": "keep results on the GPU and copy them less often, in one piece: non_blocking=True "
        "into pinned memory while the next step runs; copy offloaded activations on a separate stream",
        "offloaded-to-host": _offloaded,
        "copies-on-gpu-exposed": "no copies of whole tensors in the step (.contiguous(), .clone(), torch.cat): write "
        "results where they are used (out=); gradient_as_bucket_view=True of DistributedDataParallel; torch.compile",
        "small-copy-before-step": ON_DEVICE,
        "memory-allocated-in-the-loop": "PyTorch's caching allocator: no PYTORCH_NO_CUDA_MEMORY_CACHING (on AMD "
        "PYTORCH_NO_HIP_MEMORY_CACHING), no torch.cuda.empty_cache() in the loop",
        "loss-fetched-every-step": "loss.item(), .cpu() and print every hundredth step; sum metrics on the GPU; no "
        "boolean indexing, and no tensor in an if: each fetches a number",
        "off-tensor-cores": _tensor_cores,
        "host-synchronises": _waits,
        "checkpoint-in-the-loop": "save less often, to a local disk; torch.distributed.checkpoint.async_save, which "
        "copies the weights and writes them from another thread",
        "cpu-may-be-faster": "run the same script with CUDA_VISIBLE_DEVICES= and compare; else take a larger batch",
        "all-reduce-exposed": _all_reduce,
        "collectives-not-fused": "a larger bucket_cap_mb of DistributedDataParallel (25 by default)",
        "copies-between-gpus": "DistributedDataParallel instead of DataParallel; put layers on as few GPUs as can "
        "hold them (device_map)",
        "model-too-small": "a larger batch, gradients accumulated under no_sync(), or fewer GPUs",
        "threads-oversubscribed": "torch.set_num_threads(cores // local ranks) or OMP_NUM_THREADS; fewer num_workers",
    }
)


def _infers(gpu: GpuMeasures) -> str:
    if in_graphs(gpu):
        return "outside of the CUDA graphs: less Python around the model; a larger batch"
    mode = (
        'mode="reduce-overhead" of torch.compile' if compiled(gpu) else 'torch.compile(model, mode="reduce-overhead")'
    )
    return f"{mode} (CUDA graphs), under torch.inference_mode(); a larger batch"


# Advice for inference in a user's own script.
INFERENCE: Mapping[str, Words] = MappingProxyType(
    {
        "launch-bound": _infers,
        "python-in-the-loop": lambda gpu: (
            f"{_after_waits(gpu)}{_infers(gpu)}; prepare inputs and read results in separate threads"
        ),
        "host-synchronises": _waits,
        "short-kernels": lambda gpu: "a larger batch" if compiled(gpu) else "torch.compile(model); a larger batch",
        "copies-pageable": PINNED,
        "copies-synchronous": PINNED,
        "copies-exposed": _inputs,
        "copies-to-host-exposed": "copy fewer results back (classes, not logits), while the next batch computes",
        "copies-on-gpu-exposed": "write inputs and caches where they are used, instead of copying whole tensors",
        "tiny-batch": lambda gpu: f"a larger batch, or several requests at once (streams, processes){_joined(gpu)}",
        "collectives-exposed": "use fewer GPUs for one model; gather results less often, or while the next batch "
        "computes",
        "not-compiled": "torch.compile(model)",
        "all-reduce-exposed": "fewer GPUs for one model (tensor parallel); larger batches",
    }
)


def _between_passes(gpu: GpuMeasures) -> bool:
    """True if the GPU waits for launches mostly between two forward passes of a server, rather than within a pass."""
    gaps = gpu.batch_gap_ledger_ns
    if gpu.window == "steps" and gpu.steps.count == 1:
        return False  # The window begins at its first kernel, so the first gap is no wait.
    if gpu.window != "steps" or gaps is None:
        return True
    return 2 * gaps.get("idle_launch", 0) > (gpu.ledger_ns["idle_launch"] or 0)


def _served_launches(gpu: GpuMeasures) -> str:
    """Advice on late launches in an inference server. A recording of prefill alone gets no advice on CUDA graphs for
    decoding."""
    if gpu.steps.decodes:
        return (
            'CUDA graphs for decoding (torch.compile(mode="reduce-overhead"); vLLM has them without enforce_eager, '
            "SGLang with --cuda-graph-bs); larger batches"
        )
    compile_it = "" if _mostly_compiled(gpu) else "compile the model (torch.compile; vLLM without enforce_eager), with "
    return (
        f"{compile_it}piecewise CUDA graphs for as many tokens as a prompt has (vLLM's cudagraph_capture_sizes, "
        "SGLang's --piecewise-cuda-graph-max-tokens); more prompts in a pass (max_num_batched_tokens, "
        "--chunked-prefill-size)"
    )


def _mostly_compiled(gpu: GpuMeasures) -> bool:
    return 10 * gpu.kernels.groups.get("fused", {}).get("count", 0) > gpu.kernels.count


def _served_python(gpu: GpuMeasures) -> str:
    """Advice on Python code in an inference server. Between forward passes the GPU may be idle merely because no
    request came."""
    if not _between_passes(gpu):
        return _served_launches(gpu)
    ahead = "run the scheduler ahead of the GPU (SGLang's overlap schedule, vLLM's async scheduling)"
    rest = f"CUDA graphs for decoding, and {ahead}; larger batches" if gpu.steps.decodes else f"{ahead}; more prompts"
    return f"nothing, if the GPU idled because no request came; otherwise {rest}"


def _served_all_reduce(gpu: GpuMeasures) -> str:
    """Advice on the all-reduces of an inference server. The server's own all-reduce kernel is advised only if it does
    not run yet."""
    summed = [one.name for one in gpu.kernels.top if names_collective(one.name)]
    own = any(not re.search("(?i)[nr]ccl", name) for name in summed)
    by_server = "" if own else "the server's own all-reduce kernel instead of NCCL's; "
    return f"fewer GPUs per replica (tensor parallel); {by_server}larger batches"


# Advice for an inference server, if the recording holds the server's ranges.
SERVER: Mapping[str, Words] = MappingProxyType(
    {
        **INFERENCE,
        "launch-bound": _served_launches,
        "python-in-the-loop": _served_python,
        "host-synchronises": "schedule the next batch before the tokens of the last one are fetched (vLLM's async "
        "scheduling, SGLang's overlap schedule); no .item() or .cpu() between layers",
        "short-kernels": "CUDA graphs; fused kernels (torch.compile, or the server's own); larger batches",
        "copies-to-host-exposed": "copy back tokens or scores, not logits, while the next batch computes",
        "tiny-batch": "more requests per batch",
        "not-compiled": "torch.compile or the server's CUDA graphs",
        "all-reduce-exposed": _served_all_reduce,
        "collectives-exposed": "use fewer GPUs per replica; gather results less often, or while the next batch "
        "computes",
    }
)
