"""The option of XLA that is set where there is a GPU and the user has not named it: by `ring.init`, and for rules.

XLA compiles and times some 40 kernels of Triton's for each shape of matrix product, one shape after the other, and on
an H200 takes cuBLAS's for nearly all. Without them a decoder's first step comes after 28 to 32 s instead of 46, and it
trains as fast (docs/results, 2026-11-23).
"""

from __future__ import annotations

import os

OPTION = "--xla_gpu_experimental_autotune_backends"
WITHOUT_TRITON = f"{OPTION}=-triton"
KNOWN_BY = "2.21."  # versions of TensorFlow: at an option that it does not know XLA ends the process


def set_options(*, gpu: bool, tensorflow: str) -> None:
    """In the environment, which XLA reads when it first compiles. tensorflow: its version."""
    flags = os.environ.get("XLA_FLAGS", "")
    names_file = bool(flags.strip()) and not flags.strip().startswith("-")
    if gpu and OPTION not in flags and not names_file and tensorflow.startswith(KNOWN_BY):
        os.environ["XLA_FLAGS"] = f"{flags} {WITHOUT_TRITON}".strip()
