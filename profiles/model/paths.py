"""The layer that a path tells: an operator as TensorFlow, Keras, JAX or ONNX Runtime calls it."""

from __future__ import annotations

import re
from typing import Final

# ONNX Runtime's: the operation, its place in the graph, and the node, of gradients the node that they are of.
_ONNX: Final = re.compile(r"\w+\.\d+\((.+?)(?:_Grad/\w+)?\)")
_CALLS: Final = re.compile(r"(?:\w+\()*")
_NAME: Final = re.compile(r"[\w.-]+")
# The last parts of a path of TensorFlow are operations: CamelCase, and what Keras calls its own scopes.
_OPERATION: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*(?:_\d+)?|convolution|moments|batchnorm|mul|add|sub|truediv|\w+_fusion"
)


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
    """The name that a transformation of JAX's is of: `Net` of `transpose(jvp(Net))`."""
    opened = _CALLS.match(part)
    depth = min(opened[0].count("("), len(part) - len(part.rstrip(")"))) if opened else 0
    return part.split("(", depth)[-1].removesuffix(")" * depth)
