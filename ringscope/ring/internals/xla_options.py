"""The options of XLA that are set where there is a GPU and the user has not named them: by `ring.init`, and for rules.

XLA compiles and times some 40 kernels of Triton's for each shape of matrix product, one shape after the other, and on
an H200 takes cuBLAS's for nearly all. Without them a decoder's first step comes after 28 to 32 s instead of 46, and it
trains as fast (docs/results, 2026-11-23). It compiles each way of a fusion, one after the other, though most
have one way only: without that a ResNet-50's first step on an H100 comes after 61 s instead of 76, a ConvNeXt's after
111 instead of 141, and they train as fast within 1.3 % (docs/results, 2026-11-25). cuDNN's convolutions it has to time:
some 70 ways for each, two thirds of a U-Net's first start. Its choices are kept, so a changed program
has only its new convolutions timed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

BACKENDS = "--xla_gpu_experimental_autotune_backends"
WITHOUT_TRITON = f"{BACKENDS}=-triton"
FUSIONS = "--xla_gpu_experimental_enable_fusion_autotuner"
WITHOUT_FUSIONS = f"{FUSIONS}=false"
CHOICES = "--xla_gpu_experimental_autotuner_cache_dir"
ROOM = 1 << 20  # bytes: the choices of a program take some 4 kB each, 500 kB for a U-Net's
KNOWN_BY = "2.21."  # versions of TensorFlow: at an option that it does not know XLA ends the process


def set_options(*, gpu: bool, tensorflow: str) -> None:
    """In the environment, which XLA reads when it first compiles. tensorflow: its version."""
    if gpu:
        for option in (WITHOUT_TRITON, WITHOUT_FUSIONS):
            _add(option, tensorflow)


def keep_choices(directory: Path, *, tensorflow: str) -> None:
    """Have XLA write its choices of kernels there, and read them. The caller's directory says what they hold for, such
    as the GPU. If XLA can write no file it ends the process: nothing is kept then."""
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
