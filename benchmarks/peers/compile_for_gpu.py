"""How long XLA compiles a step for an H100, and what its kernels read and write, on a machine that has none.

JAX brings XLA's part for GPUs, and TensorFlow without a GPU writes what is to be compiled. Run by a Python with JAX,
this prints a line of JSON.

    XLA_FLAGS='--xla_dump_to=/tmp/step --xla_dump_hlo_as_proto --xla_dump_hlo_module_re=.*whole_step.*' \\
        python -m benchmarks.peers.fit_keras --way ring --model convnext_tiny --step compiled --steps 1 --epochs 1
    python3 -m venv /tmp/jax && /tmp/jax/bin/pip install 'jax[cuda12]==0.9.0'
    /tmp/jax/bin/python benchmarks/peers/compile_for_gpu.py /tmp/step/*.before_optimizations.hlo.pb

The first may be ended as soon as that file is there. What XLA tries on the GPU, such as convolutions, is not in it.
With XLA_FLAGS=--xla_gpu_enable_triton_gemm=false memory is planned as for ring's steps, which leave products to cuBLAS.
JAX 0.9's XLA does with what was tried here as TensorFlow 2.21's does; since 0.10 it compiles kernels side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# From XLA's own description of it (xla/backends/gpu/target_config/specs/h100_sxm.txtpb).
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 14 patch: 0 }
runtime_version { major: 12 minor: 5 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
LOGGED = {  # by a source file of XLA's: how verbose it has to be for what is read here
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "hlo_pass_pipeline=2,gpu_compiler=1,nvptx_compiler=1,compile_module_to_llvm_ir=1",
}
PARTS = {
    "choosing_fusions_s": "HLO pass: priority-fusion",
    "kernels_s": r"IR emission for \S+",
    "ptx_s": r"CompileToPtx for \S+",
    "machine_code_s": r"PtxToCubin for \S+",
}
TOOK = r" time: ([\d.]+) (us|ms|s|min)\b"
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", type=Path, help="the program, as XLA has written it")
    parser.add_argument("--here", action="store_true", help="compile in this process, whose log another one reads")
    options = parser.parse_args()
    if options.here:
        compile_here(options.step)
    else:
        print(json.dumps(compiled(options.step)))


def compiled(step: Path) -> dict[str, float]:
    """Seconds by part, those of a process of its own. Raises SystemExit with the end of its log where it fails."""
    own = subprocess.run(
        [sys.executable, __file__, step, "--here"],
        env=os.environ | LOGGED | {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},  # of a GPU's libraries
        capture_output=True,
        text=True,
        errors="replace",
    )
    if own.returncode:
        raise SystemExit(own.stderr[-2000:].strip())
    parts = {name: _longest(own.stderr, part) for name, part in PARTS.items()}
    return json.loads(own.stdout.splitlines()[-1]) | parts  # type: ignore[no-any-return]


def _longest(log: str, part: str) -> float:
    """A part is logged again for small programs that are compiled on the way."""
    found = (float(number) * SECONDS[unit] for number, unit in re.findall(part + TOOK, log))
    return round(max(found, default=0.0), 2)


def compile_here(step: Path) -> None:
    """Prints the seconds that it took, what its kernels read and write, and the memory between them, as XLA counts."""
    import jax
    import numpy as np
    from jax._src import compiler
    from jax._src.interpreters.mlir import make_ir_context
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    devices = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1").devices
    computation = xla_client.XlaComputation(_module_of(step.read_bytes()))
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    options: Any = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, device_assignment=np.zeros((1, 1), int), use_spmd_partitioning=False
    )
    with make_ir_context():
        module = ir.Module.parse(text)
        # JAX takes no program with copies of its own, which XLA makes anyway.
        module = ir.Module.parse(str(module).replace("mhlo.copy", "stablehlo.convert"))
    began = time.monotonic()
    made = devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
    seconds = round(time.monotonic() - began, 1)
    here = jax.local_devices(backend="cpu")[0].client
    traffic = xla_client._xla.hlo_module_cost_analysis(here, made.hlo_modules()[0])["bytes accessed"]
    between = made.get_compiled_memory_stats().temp_size_in_bytes
    counts = {"compiled_s": seconds, "traffic_gb": round(traffic / 1e9, 2), "temporary_gib": round(between / 2**30, 2)}
    print(json.dumps(counts))


def _module_of(written: bytes) -> bytes:
    """The HloModuleProto, which is an HloProto's first field: a byte, its length in groups of 7 bits, itself."""
    if written[:1] != b"\x0a":
        raise SystemExit("not a program that XLA has written with --xla_dump_hlo_as_proto")
    begin = next(place for place, byte in enumerate(written[1:], start=2) if byte < 128)
    length = sum((byte & 127) << 7 * place for place, byte in enumerate(written[1:begin]))
    return written[begin : begin + length]


if __name__ == "__main__":
    main()
