"""What operators and layers are called: one name for all its calls, and the layer that a name tells."""

from __future__ import annotations

import re
from typing import Final

from ..marks import DOMAIN, WAIT_INPUT
from ..steps.marks import STEPS

# Ranges of libraries that move data, and those that name an edge of TensorFlow's graph, are of no operator.
_OTHER_DOMAINS: Final = frozenset({"NCCL", "HorovodOps", "MPI", "UCX"})
_NO_OPERATOR: Final = re.compile(r"#edge_name=.*|\{'traceMarker'.*|PyTorch Profiler.*", re.DOTALL)
_STEP: Final = re.compile("|".join(f"(?:{one})" for one in STEPS))
# What PyTorch's emit_nvtx adds to a name: ", seq = 3, op_id = 7, sizes = [[2, 3]]".
_PYTORCH: Final = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
_TSL: Final = re.compile(r"(\w*):?#(.*)#", re.DOTALL)
_CALL: Final = re.compile(r"\w+\((.*)\)")
_NAME: Final = re.compile(r"[\w.-]+")
_NUMBER: Final = re.compile(r"[._]\d+$")
# The last parts of a path of TensorFlow are operations: CamelCase, and what Keras calls its own scopes.
_OPERATION: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*(?:_\d+)?|convolution|moments|batchnorm|mul|add|sub|truediv|\w+_fusion"
)


def of_range(name: str, domain: str) -> str | None:
    """The operator that a range names, without what differs from call to call; None: it names none."""
    if domain in _OTHER_DOMAINS or domain == DOMAIN or name == WAIT_INPUT:
        return None
    if _NO_OPERATOR.fullmatch(name) or _STEP.fullmatch(name):
        return None
    if told := _TSL.fullmatch(name):
        said = dict(part.partition("=")[::2] for part in told[2].split(","))
        return of_kernel(said.get("name") or said.get("hlo_op", "")) or told[1] or None
    return _PYTORCH.sub("", name) or None


def of_kernel(told: str) -> str:
    """The operator that a kernel says it belongs to: a path, `model/conv_1/Conv2D`, or the compiler's instruction,
    whose number another compilation gives to another one."""
    return told if "/" in told else _NUMBER.sub("", told)


def layer(operator: str) -> str | None:
    """The layer in a path of TensorFlow, Keras or JAX, forward or backward; None where the name tells none.

    `gradient_tape/net/net/conv_1/convolution/Conv2DBackpropInput` and `net/net/conv_1/convolution` are `net/conv_1`;
    `jit(step)/transpose(jvp(Net))/Dense_0/dot_general` is `Net/Dense_0`.
    """
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
    while inner := _CALL.fullmatch(part):
        part = inner[1]
    return part
