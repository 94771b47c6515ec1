"""The advice for each finding in a PyTorch program. A remedy that the recording refutes is left out.

Sources: PyTorch's performance tuning guide, and the references of DataLoader, torch.compile, DistributedDataParallel
and its communication hooks (docs.pytorch.org).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ..metrics.kernels import TORCH_COMPILED
from ..metrics.peaks import lacks_tf32
from ..model.measures import GpuMeasures
from ..model.operations import Copies
from .collectives import LESS_TO_SEND, is_sharded, summed_as
from .gpu_facts import SIZES, Words, compiled, convolves, in_float32, in_graphs, pageable, recurrent
from .host_idle import mostly_after_waits
from .shared_advice import DATA_LOADER
from .small_batches import UNFILLED_SHARE

TORCH_KERNEL = re.compile(rf"at::native|{TORCH_COMPILED}")

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
ON_DEVICE = (
    "make small tensors on the device (torch.full(..., device=...)), or copy them with the batch, from pinned memory "
    "and non_blocking"
)
_FROM_PINNED = (
    "copy batches from pinned memory with non_blocking=True, since the host waits for copies from other memory"
)
_LESS_OFTEN = "copy results back less often (.cpu(), .numpy(), print), with non_blocking=True into pinned memory"
# Copies of fewer bytes than this on average carry numbers of the host, not batches.
_SMALL_BYTES = 1024
_MOST = 0.1  # A waiting call that causes at least this share of the sync idle gets its own remedy.
# PyTorch operator in which the host waits for the GPU -> remedy.
_NO_WAIT = {
    **dict.fromkeys(
        ("aten::item", "aten::_local_scalar_dense"),
        ".item() only every hundredth step, and sums on the GPU until then",
    ),
    "aten::is_nonzero": "no tensor in an if",
    "aten::nonzero": "no boolean indexing or nonzero(): torch.where, or a mask",
}


def _launches(gpu: GpuMeasures) -> str:
    if in_graphs(gpu):
        return f"outside of the CUDA graphs: {LESS_PYTHON}"
    return GRAPHED if recurrent(gpu) else REDUCED if compiled(gpu) else FEWER_LAUNCHES


def after_waits(gpu: GpuMeasures) -> str:
    """Advice if the host launches late mostly because of its own work after a wait for the GPU; else ""."""
    if not mostly_after_waits(gpu):
        return ""
    return "move the host's work after a wait to a separate thread, or do it once the next step is launched; "


def _python(gpu: GpuMeasures) -> str:
    plain = not (in_graphs(gpu) or recurrent(gpu) or compiled(gpu))
    less = "; less Python between the steps: hooks, callbacks, logging" if plain else ""
    return f"{after_waits(gpu)}{_launches(gpu)}{less}"


def _short(gpu: GpuMeasures) -> str:
    autotuned = "" if compiled(gpu) else 'torch.compile(model, mode="max-autotune"), '
    channels = "memory_format=torch.channels_last, " if convolves(gpu) else ""
    return f"{autotuned}{channels}a larger batch"


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


def _fewer_bytes(gpu: GpuMeasures) -> str:
    if gpu.exchange == "fsdp" and not pageable(gpu):
        return OFFLOADED
    images = "images as uint8, scaled on the GPU" if convolves(gpu) else "16-bit features"
    return f"{_ahead(gpu)}; send fewer bytes: {images}; keep data that every step needs on the GPU"


def _loader(gpu: GpuMeasures) -> str:
    workers = DATA_LOADER
    if gpu.loader == "DataLoader in the training's process":
        workers += ": it makes batches in the training's own process now (num_workers=0)"
    elif gpu.loader == "DataLoader":
        workers = (
            "a larger num_workers of the DataLoader, up to the cores of a rank; prefetch_factor=4; less work per sample"
        )
    images = "; smaller images in the files; decode and augment on the GPU" if convolves(gpu) else ""
    return workers + images


def waits(gpu: GpuMeasures) -> str:
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
            parts[ON_DEVICE if _small(gpu.copies["h2d"]) else _FROM_PINNED] = None
        elif one["moves"] == "d2h":
            parts[_LESS_OFTEN] = None
        else:
            parts["no torch.cuda.synchronize() and no other wait for the GPU in every step"] = None
    return "; ".join(parts) or "no .item(), .cpu(), boolean indexing or torch.cuda.synchronize() in every step"


def _small(copies: Copies) -> bool:
    return copies.bytes is not None and copies.bytes < _SMALL_BYTES * (copies.count or 0)


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
        return LESS_TO_SEND
    hooks = "" if summed_as(gpu) == "16 bits" else " with fp16_compress_hook or bf16_compress_hook,"
    return f"DistributedDataParallel{hooks} gradient_as_bucket_view=True, another bucket_cap_mb; {accumulated}"


def joined(gpu: GpuMeasures) -> str:
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
            f"a larger batch until samples/s stop growing, and a learning rate that grows with it{joined(gpu)}"
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
        "host-synchronises": waits,
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
