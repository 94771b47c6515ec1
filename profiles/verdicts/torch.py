"""What to change where PyTorch made the kernels: Keras on its torch backend, or a training of PyTorch's own.

By the names of PyTorch's performance tuning guide and of the references of DataLoader, torch.compile,
DistributedDataParallel and its communication hooks (docs.pytorch.org).
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..measures import Finding, GpuMeasures
from ..metrics.kernels import TORCH_COMPILED
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
CHANGES = {
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
    "small-copy-before-step": "make small tensors on the device (torch.full(..., device=...)), or copy them with the "
    "batch, from pinned memory and non_blocking",
    "loss-fetched-every-step": "loss.item(), .cpu() and print every hundredth step; sum metrics on the GPU",
    "host-synchronises": "no .item(), .cpu(), boolean indexing or torch.cuda.synchronize() a step",
    "cpu-may-be-faster": "compare: the same script with CUDA_VISIBLE_DEVICES= ; else a larger batch",
    "all-reduce-exposed": "DistributedDataParallel with fp16_compress_hook or bf16_compress_hook, "
    "gradient_as_bucket_view=True, bucket_cap_mb tried; no_sync() while gradients accumulate; a larger batch",
    "collectives-not-fused": "a larger bucket_cap_mb of DistributedDataParallel (25 by default)",
    "model-too-small": "a larger batch, gradients accumulated under no_sync(), or fewer GPUs",
    "threads-oversubscribed": "torch.set_num_threads(cores // local ranks) or OMP_NUM_THREADS; fewer num_workers",
}


def made_kernels(gpu: GpuMeasures) -> bool:
    """Do the kernels that take most of the time bear names of PyTorch or of its compiler?"""
    return any(TORCH_KERNEL.search(kernel.name) for kernel in gpu.kernels.top)


def reworded(finding: Finding) -> Finding:
    """The finding with PyTorch's change in place of Keras's on TensorFlow; as it is where they do not differ."""
    change = CHANGES.get(finding.code)
    if change is None:
        return finding
    return replace(finding, change=f"{MOSTLY_WAITING}; {change}" if MOSTLY_WAITING in finding.change else change)
