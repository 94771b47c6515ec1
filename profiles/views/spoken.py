"""XLA's names in words: the layer or loss that compiled work comes from or, if unknown, the kind of work."""

from __future__ import annotations

import re
from typing import Final

from ..model import paths, xla_names

_RANGE: Final = re.compile(r"(\w+):?#(.*)#", re.DOTALL)
_BACKWARD: Final = re.compile(r"gradient_tape/|.*\btranspose\(", re.DOTALL)
# Numbers at the end of a name, matched on the reversed name. N stands for a number in the names of host ranges.
_NUMBERS: Final = re.compile(r"(?:(?:\d+|N)[._])*")
# Pattern of an instruction's name, kind of work; the first match is taken.
_KINDS: Final = (
    (xla_names.COMMAND_BUFFER, "a CUDA graph"),
    (r".*all-?_?reduce.*", "an all-reduce"),
    (r".*(?:all-?_?gather|reduce-?_?scatter|all-?_?to-?_?all|collective).*", "an exchange"),
    (r"cudnn-conv.*|.*convolution.*", "a convolution"),
    (r"gemm_fusion.*|.*_dot(?:_.*)?|dot|cublas.*", "a matrix product"),
    (r"(?:triton_)?softmax.*", "a softmax"),
    (r"input_.*reduce.*|.*_reduce_fusion|wrapped_reduce.*", "a reduction"),
    (r"input_.*scatter.*|wrapped_scatter.*", "a scatter"),
    (r".*transpose.*", "a transposition"),
    (r".*concatenate.*|.*pad.*|.*slice.*|.*gather.*|copy.*", "a copy"),
    (r"loop_.*|wrapped_.*|.*fusion.*", "element-wise work"),
    (r"custom-?_?call.*", "a call of a library"),
)
_FUSED: Final = re.compile(r"(?:loop|input)_(\w+)_fusion")


def name(told: str, operator: str | None = None) -> str:
    """The name of a kernel, an operator or a range with its meaning in words; unchanged if XLA did not make the name.

    operator: the path of the framework's operator that a kernel belongs to, if known."""
    if of_range := _RANGE.fullmatch(told):
        said = dict(part.partition("=")[::2] for part in of_range[2].split(","))
        if "hlo_op" in said:
            path = said.get("name", "")
            return f"XLA, {place(path) if path else kind(said['hlo_op'])} ({said['hlo_op']})"
        return f"XLA's program {said['hlo_module']}" if "hlo_module" in said else told
    if operator:
        return f"{told}: {place(operator)}"
    return f"{told}: {kind(told)}" if xla_names.compiled(told) else told


def place(path: str) -> str:
    """The layer that a framework's path names, else the path; with `, backward` for work of the backward pass."""
    layer = paths.layer(path) or path.rstrip("/")
    return f"{layer}, backward" if _BACKWARD.match(path) else layer


def kind(instruction: str) -> str:
    """The kind of work that an XLA instruction does, with the operations fused into it if its name lists them."""
    numbers = _NUMBERS.match(instruction[::-1])
    bare = instruction[: len(instruction) - (numbers.end() if numbers else 0)]
    found = next((words for pattern, words in _KINDS if re.fullmatch(pattern, bare)), "work of another kind")
    fused = _FUSED.fullmatch(bare)
    return f"{found} ({fused[1].replace('_', ', ')})" if fused and fused[1] != "reduce" else found
