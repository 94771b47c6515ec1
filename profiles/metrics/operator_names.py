"""What operators and layers are called: one name for all its calls, and the layer that a name tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..model.marks import DOMAIN, WAIT_INPUT
from ..model.xla_names import COMMAND_BUFFER, compiled
from ..steps.marks import STEPS

# Ranges of libraries that move data, or that name an edge of TensorFlow's graph, are of no operator.
_OTHER_DOMAINS: Final = frozenset({"NCCL", "HorovodOps", "MPI", "UCX"})
_NO_OPERATOR: Final = re.compile(r"#edge_name=.*|\{'traceMarker'.*|PyTorch Profiler.*|nccl[A-Z]\w*|MPI_\w+", re.DOTALL)
_STEP: Final = re.compile("|".join(f"(?:{one})" for one in STEPS))
# What PyTorch's emit_nvtx adds to a name: ", seq = 3, op_id = 7, sizes = [[2, 3]]".
_PYTORCH: Final = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
# ONNX Runtime's: the operation, its place in the graph, and the node, of gradients the node that they are of.
_ONNX: Final = re.compile(r"\w+\.\d+\((.+?)(?:_Grad/\w+)?\)")
_TSL: Final = re.compile(r"(\w*):?#(.*)#", re.DOTALL)
_CALLS: Final = re.compile(r"(?:\w+\()*")
_NAME: Final = re.compile(r"[\w.-]+")
_NUMBER: Final = re.compile(r"[._]\d+$")
# The last parts of a path of TensorFlow are operations: CamelCase, and what Keras calls its own scopes.
_OPERATION: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*(?:_\d+)?|convolution|moments|batchnorm|mul|add|sub|truediv|\w+_fusion"
)


class Texts(dict[str, int]):
    """Texts by number, in the order in which they came."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


@dataclass(frozen=True, slots=True)
class Thunk:
    """What XLA's executor does under a range: the operator, and what a kernel compiled for it is called, if any is."""

    operator: str
    kernel: str  # as `compiled` gives it; "" where it is not one that XLA compiles

    @property
    def launches_graph(self) -> bool:
        return self.operator == COMMAND_BUFFER


def thunk(name: str) -> Thunk | None:
    """None where the range is none of XLA's executor."""
    told = _TSL.fullmatch(name)
    operator = of_range(name, "") if told else None
    return Thunk(operator, compiled(_said(told[2]).get("hlo_op", ""))) if told and operator else None


def of_range(name: str, domain: str) -> str | None:
    """The operator that a range names, without what differs from call to call; None: it names none."""
    if domain in _OTHER_DOMAINS or domain == DOMAIN or name == WAIT_INPUT:
        return None
    if _NO_OPERATOR.fullmatch(name) or _STEP.fullmatch(name):
        return None
    if told := _TSL.fullmatch(name):
        said = _said(told[2])
        instruction = of_kernel(said.get("hlo_op", ""))
        if instruction == COMMAND_BUFFER:
            return COMMAND_BUFFER
        program = "hlo_module" in said  # a program, not an operator
        return said.get("name") or instruction or (None if program else told[1]) or None
    return _PYTORCH.sub("", name) or None


def _said(told: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in told.split(","))


def of_kernel(told: str) -> str:
    """The operator that a kernel says it belongs to: a path, `model/conv_1/Conv2D`, or the compiler's instruction,
    whose number another compilation gives to another one."""
    return told if "/" in told else _NUMBER.sub("", told)


def layer(operator: str) -> str | None:
    """The layer in a path of TensorFlow, Keras or JAX, forward or backward; None where the name tells none.

    `gradient_tape/net/net/conv_1/convolution/Conv2DBackpropInput` and `net/net/conv_1/convolution` are `net/conv_1`;
    `jit(s)/transpose(jvp(Net))/Dense_0/dot_general` is `Net/Dense_0`; `Conv.3(/layer1/conv1/Conv)` is `layer1/conv1`.
    """
    if onnx := _ONNX.fullmatch(operator):
        return onnx[1].rpartition("/")[0].strip("/") or None
    jax = re.match(r"p?jit\(", operator) is not None
    if not jax and ("::" in operator or "/" not in operator):
        return None
    parts = [part for part in operator.partition(":")[0].split("/") if part and part != "gradient_tape"]
    if jax:
        bare = (_bare(part) for part in parts[:-1] if not re.match(r"p?jit\(", part))
        parts = [part for part in bare if _NAME.fullmatch(part)]
    else:
        while len(parts) > 1 and _OPERATION.fullmatch(parts[-1]):
            parts.pop()
    parts = [part for at, part in enumerate(parts) if part and part != (parts[at - 1] if at else "")]
    return "/".join(parts) or None


def _bare(part: str) -> str:
    """What a transformation of JAX's is of: `Net` of `transpose(jvp(Net))`."""
    opened = _CALLS.match(part)
    depth = min(opened[0].count("("), len(part) - len(part.rstrip(")"))) if opened else 0
    return part.split("(", depth)[-1].removesuffix(")" * depth)
