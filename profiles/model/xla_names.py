"""Names of XLA's instructions and of the kernels that XLA compiles for them."""

from __future__ import annotations

import re
from typing import Final

# Prefix of the names of XLA's instructions that launch a CUDA graph.
COMMAND_BUFFER: Final = "command_buffer"

_IN_KERNELS: Final = re.compile(r"[^A-Za-z0-9_]")
_NUMBERS: Final = re.compile(r"(?:\d+_)*")  # numbers at the end of a name; matched on the reversed name
_COMPILED: Final = re.compile(r"(?:\w+_)?fusion(?:_\w+)?|wrapped_\w+")
_NAME: Final = re.compile(r"[\w.-]+")


def of_kernel(instruction: str) -> str:
    """The name of the kernel that XLA compiles for this instruction."""
    return _IN_KERNELS.sub("_", instruction)


def compiled(name: str) -> str:
    """The name of a kernel that XLA compiled, or of its instruction, without the number at its end, which may differ.
    `loop_add_fusion` for `loop_add_fusion_12` and for `loop_add_fusion.3`; "" for a library's kernel."""
    if not _NAME.fullmatch(name):  # for instance `void cudnn::fusion::compute_dot_do_o<int>(int)`
        return ""
    whole = of_kernel(name.removesuffix(".kd"))  # .kd: suffix on AMD's GPUs
    numbers = _NUMBERS.match(whole[::-1])
    bare = whole[: len(whole) - (numbers.end() if numbers else 0)]
    return bare if _COMPILED.fullmatch(bare) else ""
