"""Find the layer in an operator's path, as TensorFlow, Keras, JAX and ONNX Runtime write it."""

from __future__ import annotations

import re
from typing import Final

# ONNX Runtime's name of a node: operation, index in the graph, and node; for a gradient, the node of the forward
# pass.
_ONNX: Final = re.compile(r"\w+\.\d+\((.+?)(?:_Grad/\w+)?\)")
_CALLS: Final = re.compile(r"(?:\w+\()*")
_NAME: Final = re.compile(r"[\w.-]+")
# The last parts of a TensorFlow path are operations: names in CamelCase, and scopes that Keras adds.
_OPERATION: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*(?:_\d+)?|convolution|moments|batchnorm|mul|add|sub|truediv|\w+_fusion"
)


def layer(operator: str) -> str | None:
    """The layer in an operator's path, for forward and backward operators alike; None if the path has no layer.

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
    """The name without JAX's transformations: `Net` for `transpose(jvp(Net))`."""
    opened = _CALLS.match(part)
    depth = min(opened[0].count("("), len(part) - len(part.rstrip(")"))) if opened else 0
    return part.split("(", depth)[-1].removesuffix(")" * depth)
