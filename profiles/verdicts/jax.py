"""The advice for each finding in a JAX program; advice that the recording refutes is left out. Source: JAX's
documentation of jit, transfers and XLA's GPU flags (docs.jax.dev)."""

from __future__ import annotations

from collections.abc import Mapping

from ..metrics.peaks import lacks_tf32
from ..model.measures import GpuMeasures
from .collectives import summed_as
from .gpu_facts import SIZES, Words, compiled, in_float32

_SEVERAL = 3
SCAN = "several steps in one call (jax.lax.scan); a larger batch"
HIDE = "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true"


def _launches(gpu: GpuMeasures) -> str:
    """Advice on late launches. Compiled kernels alone do not prove that one jax.jit encloses the whole step."""
    jitted = compiled(gpu) and not _by_operator(gpu)
    return f"donate_argnums; {SCAN}" if jitted else f"jax.jit around the whole step with donate_argnums; {SCAN}"


def _by_operator(gpu: GpuMeasures) -> bool:
    """True if the host calls several jitted functions while the GPU is idle, which shows that no jax.jit encloses the
    step."""
    host = (*gpu.host_while_idle, *(one for gap in gpu.idle_gaps for one in gap.host))
    return len({one["name"] for one in host if one["name"].startswith("PjitFunction(")}) >= _SEVERAL


def _tensor_cores(gpu: GpuMeasures) -> str:
    if in_float32(gpu) and lacks_tf32(gpu.name):
        return "float16 operands of matrix products, with a scaled loss; this GPU has neither TF32 nor bfloat16"
    if in_float32(gpu):
        return 'jax.config.update("jax_default_matmul_precision", "tensorfloat32"), or bfloat16'
    return SIZES


def _all_reduce(gpu: GpuMeasures) -> str:
    half = "" if summed_as(gpu) == "16 bits" else "16-bit gradients; "
    return f"{HIDE}; {half}a larger batch"


AHEAD = "call jax.device_put on the next batch before you ask for this step's result"
TRAINING: Mapping[str, Words] = {
    "checkpoint-in-the-loop": "save less often, to a local disk; orbax's AsyncCheckpointer, which writes from another "
    "thread",
    "off-tensor-cores": _tensor_cores,
    "not-compiled": "jax.jit around the whole step",
    "unfused-batch-norm": "jax.jit around the whole step",
    "generic-rnn-cell": "a larger batch and hidden size; jax.lax.scan(unroll=8)",
    "offloaded-to-host": "keep them on the GPU where memory allows: jax.checkpoint with a policy that recomputes in "
    "place of offloading, optax states in memory kind device, more GPUs to shard over",
    "launch-bound": _launches,
    "python-in-the-loop": lambda gpu: _launches(gpu) + "; no float(loss) or block_until_ready per step",
    "graphs-updated-every-step": "donate_argnums, so that buffers stay where they are; else without command buffers "
    "(XLA_FLAGS=--xla_gpu_enable_command_buffer=)",
    "short-kernels": lambda gpu: "a larger batch" if compiled(gpu) else "jax.jit around the whole step; a larger batch",
    "tiny-batch": "a larger batch until samples/s stop growing",
    "input-pipeline-slow": "make batches in separate threads or processes (grain, tf.data), two ahead of the step",
    "no-prefetch": AHEAD,
    "prefetch-on-host-only": AHEAD,
    "copies-pageable": AHEAD + "; reuse NumPy arrays, aligned to 64 bytes",
    "copies-synchronous": AHEAD,
    "copies-exposed-although-prefetched": "send fewer bytes: images as uint8, scaled in the step",
    "copies-exposed": AHEAD + "; send fewer bytes: images as uint8, scaled in the step",
    "copies-to-host-exposed": "keep results on the device; copy the rest back by copy_to_host_async, while the next "
    "call runs",
    "copies-on-gpu-exposed": "donate_argnums, so that state is updated in place; no transposes or concatenations of "
    "whole arrays between the calls",
    "small-copy-before-step": "make small arrays in the step, or put them on the device with the batch",
    "memory-allocated-in-the-loop": "use XLA's own allocator: do not set XLA_PYTHON_CLIENT_ALLOCATOR=platform",
    "loss-fetched-every-step": "keep losses on the device, float(loss) every hundredth step; copy what each call must "
    "give back with copy_to_host_async, while the next one runs",
    "host-synchronises": "no block_until_ready, float() or np.asarray() of a result per step",
    "cpu-may-be-faster": "run the same script with JAX_PLATFORMS=cpu and compare; else take a larger batch",
    "all-reduce-exposed": _all_reduce,
    "collectives-exposed": f"{HIDE}; a larger batch; shard over other axes of the mesh",
    "collectives-not-fused": "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=... above the gradients' bytes",
    "model-too-small": "a larger batch, or fewer GPUs",
    "threads-oversubscribed": "fewer processes per host, or one process for all its GPUs",
}
