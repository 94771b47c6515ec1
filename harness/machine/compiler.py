"""The options of XLA that are set where there is a GPU and the user has not named them: by `ring.init`, and for rules.

XLA compiles and times some 40 kernels of Triton's for each shape of matrix product, one shape after the other, and on
an H200 takes cuBLAS's for nearly all. Without them a decoder's first step comes after 28 to 32 s instead of 46, and it
trains as fast (docs/results, 2026-11-23). Of fusions it compiles each of its ways, one after the other, most of which
have one way only: without that a ResNet-50's first step on an H100 comes after 61 s instead of 76, a ConvNeXt's after
111 instead of 141, and they train as fast within 1.3 % (docs/results, 2026-11-25). cuDNN's convolutions it has to time:
some 70 ways for each, two thirds of a U-Net's first start. What it has chosen is kept, so that a program that was
changed has only its new ones timed.

Making machine code of kernels takes two fifths of a compilation without trials, one kernel after the other: XLA has
threads for it only where an option says how many. Each then takes a module of its own, and NVIDIA's linker puts them
together: TensorFlow 2.21 is built without its library, nvJitLink, and so runs the programs `ptxas` and `nvlink`. Where
it finds not both, with this option it compiles nothing at all.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

BACKENDS = "--xla_gpu_experimental_autotune_backends"
WITHOUT_TRITON = f"{BACKENDS}=-triton"
FUSIONS = "--xla_gpu_experimental_enable_fusion_autotuner"
WITHOUT_FUSIONS = f"{FUSIONS}=false"
MODULES = "--xla_gpu_enable_llvm_module_compilation_parallelism"
THREADS = "--xla_gpu_force_compilation_parallelism"
TOOLS = ("ptxas", "nvlink")
CUDA = ("/usr/local/cuda", "/opt/cuda")
CHOICES = "--xla_gpu_experimental_autotuner_cache_dir"
ROOM = 1 << 20  # bytes: the choices of a program take some 4 kB each, 500 kB for a U-Net's
KNOWN_BY = "2.21."  # versions of TensorFlow: at an option that it does not know XLA ends the process


def set_options(*, gpu: bool, tensorflow: str) -> None:
    """In the environment, which XLA reads when it first compiles. tensorflow: its version."""
    if gpu:
        for option in (WITHOUT_TRITON, WITHOUT_FUSIONS):
            _add(option, tensorflow)


def compile_by_threads(threads: int, *, gpu: bool, tensorflow: str) -> None:
    """Have XLA make machine code on so many threads, where the user names neither of the two options."""
    named = any(option in os.environ.get("XLA_FLAGS", "") for option in (MODULES, THREADS))
    if gpu and threads > 1 and not named and has_tools():
        _add(f"{MODULES}=true", tensorflow)
        _add(f"{THREADS}={threads}", tensorflow)


def without_threads(flags: str) -> str:
    """The options that say what is compiled, and not how fast."""
    return " ".join(re.sub(rf"({MODULES}|{THREADS})=\S+", "", flags).split())


def has_tools() -> bool:
    """Whether both of NVIDIA's programs are where XLA looks for them (CandidateCudaRoots in its cuda_root_path.cc)."""
    package = find_spec("tensorflow")
    within = [Path(each) for each in (package.submodule_search_locations or [])] if package else []
    roots = [Path(each) for each in (os.environ.get("CUDA_HOME"), *CUDA) if each]
    roots += [part for each in within for part in (each.parent / "nvidia/cuda_nvcc", each / "cuda", each.parents[3])]
    path = os.pathsep.join([os.environ.get("PATH", ""), *(str(root / "bin") for root in roots)])
    return all(shutil.which(tool, path=path) for tool in TOOLS)


def keep_choices(directory: Path, *, tensorflow: str) -> None:
    """Have XLA write there which kernels it has chosen, and read it. What they hold for, such as the GPU, the caller
    tells by the directory. Where it can write no file XLA ends the process: nothing is kept then."""
    try:
        directory.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as tried:
            tried.write(bytes(ROOM))
            tried.flush()
            os.fsync(tried.fileno())
    except OSError:
        return
    _add(f"{CHOICES}={directory}", tensorflow)


def _add(option: str, tensorflow: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    names_file = bool(flags.strip()) and not flags.strip().startswith("-")
    if option.partition("=")[0] not in flags and not names_file and tensorflow.startswith(KNOWN_BY):
        os.environ["XLA_FLAGS"] = f"{flags} {option}".strip()
