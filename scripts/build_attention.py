"""Build ring's call of cuDNN's attention with dropout (attention_in_xla.cc) for this Python's TensorFlow.

    .venv/bin/python scripts/build_attention.py [--out FILE] [--include DIR ...]

Needs g++, a CUDA toolkit's headers and cuDNN's; TensorFlow's GPU packages and nvidia-cudnn-frontend bring the others.
The library is kept in lib/ of the environment. Without it attention with dropout trains in Keras's own way.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from build_horovod import cuda_home

SOURCE = Path(__file__).with_name("attention_in_xla.cc")
# TensorFlow exports its own older cuDNN frontend by the same names: what is here must not be mixed with it.
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-fno-gnu-unique", "-Wl,-Bsymbolic")
HIDDEN = ("-fvisibility=hidden", "-fvisibility-inlines-hidden")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(sys.prefix) / "lib" / "ring_attention.so")
    parser.add_argument(
        "--include", type=Path, action="append", default=[], help="a folder of headers to look in first"
    )
    options = parser.parse_args()
    compiler = shutil.which("g++") or sys.exit("build_attention: no g++ on the PATH (Debian: apt install g++)")
    folders = [*options.include, *headers()]
    wanted = ("cudnn_frontend.h", "xla/ffi/api/ffi.h", "cuda_runtime.h", "nv/target")
    if lacking := [name for name in wanted if not any((folder / name).exists() for folder in folders)]:
        sys.exit(
            f"build_attention: {', '.join(lacking)} not found; pip install nvidia-cudnn-frontend, and put a CUDA"
            " toolkit's nvcc on the PATH (or name the toolkit by CUDA_HOME)"
        )
    beside = options.out.with_name(f".{options.out.name}.{os.getpid()}")
    command = [
        compiler,
        *FLAGS,
        *HIDDEN,
        *(f"-I{folder}" for folder in folders),
        str(SOURCE),
        "-o",
        str(beside),
        "-ldl",
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        error = next((line for line in built.stderr.splitlines() if "error" in line), built.stderr[-200:])
        sys.exit(f"build_attention: g++ failed: {error.strip()[:300]}")
    beside.replace(options.out)
    print(f"attention with dropout: {options.out}")


def headers() -> list[Path]:
    """Folders that hold TensorFlow's, the frontend's, cuDNN's and CUDA's headers, in the order to look."""
    tensorflow = importlib.util.find_spec("tensorflow")
    found = [Path(tensorflow.origin).parent / "include"] if tensorflow and tensorflow.origin else []
    packages = Path(sysconfig.get_path("purelib"))
    found += [packages / "include", packages / "nvidia" / "cudnn" / "include"]
    home = cuda_home()
    found += [home / "include"] if home else sorted(packages.glob("nvidia/cuda_*/include"))
    return [folder for folder in found if folder.is_dir()]


if __name__ == "__main__":
    main()
