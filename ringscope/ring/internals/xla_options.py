"""XLA options that `ring.init` (and `ringscope rules`) sets if there is a GPU and the user has not set them.

XLA compiles and times some 40 Triton kernels for each shape of matrix product, one shape after another, and on an H200
it then chooses cuBLAS for nearly all. Without Triton a decoder's first step comes after 28 to 32 s instead of 46, and
later steps take as long (docs/results, 2026-11-23). XLA also compiles each variant of a fusion, one after another,
although most fusions have only one. Without that a ResNet-50's first step on an H100 comes after 61 s instead of 76, a
ConvNeXt's after 111 instead of 141, and both train as fast within 1.3 % (docs/results, 2026-11-25). cuDNN's
convolutions must be timed: some 70 algorithms for each, two thirds of a U-Net's first start. The choices are cached, so
that a changed program only times its new convolutions. XLA keeps the channels of a 3-D convolution before its pixels
also on a Hopper GPU, whose kernels want them last, as XLA has them in all other convolutions there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

BACKENDS = "--xla_gpu_experimental_autotune_backends"
WITHOUT_TRITON = f"{BACKENDS}=-triton"
FUSIONS = "--xla_gpu_experimental_enable_fusion_autotuner"
WITHOUT_FUSIONS = f"{FUSIONS}=false"
CHANNELS_LAST = "--xla_gpu_force_conv_nhwc=true"
HOPPER = 9  # major number of its compute capability; on earlier GPUs the option changes float32 convolutions, too
CHOICES = "--xla_gpu_experimental_autotuner_cache_dir"
ROOM = 1 << 20  # bytes that must be free on the disk: one choice takes some 4 kB, a U-Net's choices 500 kB
# versions of TensorFlow that have these options: XLA ends the process at an option that it does not know
KNOWN_BY = "2.21."


def set_options(*, capability: int, tensorflow: str) -> None:
    """Set the options in the environment, which XLA reads when it first compiles. capability: the major number of the
    GPU's compute capability; 0 if there is no GPU. tensorflow: its version."""
    if capability:
        for option in (WITHOUT_TRITON, WITHOUT_FUSIONS, *([CHANNELS_LAST] if capability >= HOPPER else [])):
            _add(option, tensorflow)


def keep_choices(directory: Path, *, tensorflow: str) -> None:
    """Make XLA read and write its choices of kernels in this directory, whose name must identify the GPU and all else
    that the choices depend on. If XLA cannot write a file, it ends the process, so then nothing is kept."""
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
