"""Names that XLA gives to the instructions of its programs, and to the kernels that it compiles for them."""

from __future__ import annotations

import re
from typing import Final

# An instruction that launches a CUDA graph: the start of its name.
COMMAND_BUFFER: Final = "command_buffer"

_IN_KERNELS: Final = re.compile(r"[^A-Za-z0-9_]")
_NUMBERS: Final = re.compile(r"(?:\d+_)*")  # at the end of a name, from its last letter on
_COMPILED: Final = re.compile(r"(?:\w+_)?fusion(?:_\w+)?|wrapped_\w+")
_NAME: Final = re.compile(r"[\w.-]+")


def of_kernel(instruction: str) -> str:
    """The name of an instruction's kernel."""
    return _IN_KERNELS.sub("_", instruction)


def compiled(name: str) -> str:
    """The name of a kernel that XLA compiled, or of its instruction, without the number in which the two may differ:
    `loop_add_fusion` of `loop_add_fusion_12` and of `loop_add_fusion.3`. "" for a library's kernel.
    """
    if not _NAME.fullmatch(name):  # `void cudnn::fusion::compute_dot_do_o<int>(int)`
        return ""
    whole = of_kernel(name.removesuffix(".kd"))  # .kd: AMD's
    numbers = _NUMBERS.match(whole[::-1])
    bare = whole[: len(whole) - (numbers.end() if numbers else 0)]
    return bare if _COMPILED.fullmatch(bare) else ""
