"""The advice for each finding in a PyTorch program that answers requests: a user's own script, or an inference server.
A remedy that the recording refutes is left out. Sources: those of pytorch.py, and the documentation of vLLM and SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ..gpus.collective_kernels import names_collective
from ..model.measures import GpuMeasures
from .gpu_facts import Words, compiled, in_graphs
from .pytorch import OFFLOADED, after_waits, joined, waits

PINNED = "pinned host memory (torch.empty(..., pin_memory=True)) and .to(device, non_blocking=True)"


def _inputs(gpu: GpuMeasures) -> str:
    if gpu.exchange == "fsdp":
        return OFFLOADED
    return "copy the next batch's inputs while this one computes; send fewer bytes"


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
            f"{after_waits(gpu)}{_infers(gpu)}; prepare inputs and read results in separate threads"
        ),
        "host-synchronises": waits,
        "short-kernels": lambda gpu: "a larger batch" if compiled(gpu) else "torch.compile(model); a larger batch",
        "copies-pageable": PINNED,
        "copies-synchronous": PINNED,
        "copies-exposed": _inputs,
        "copies-to-host-exposed": "copy fewer results back (classes, not logits), while the next batch computes",
        "copies-on-gpu-exposed": "write inputs and caches where they are used, instead of copying whole tensors",
        "tiny-batch": lambda gpu: f"a larger batch, or several requests at once (streams, processes){joined(gpu)}",
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
