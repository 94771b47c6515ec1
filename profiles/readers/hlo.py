"""Read XLA programs (HloProto) in profiles: each instruction's products and convolutions, and the bytes it moves.

The work of an instruction is JSON, which profiles.metrics.flop_counts turns into FLOPs:
`{"products": [{"type", "operands": [[sizes], [sizes]], "spread": [sizes], "contracted": n}], "bytes": n}`. A product
has `contracted` multiplications, each with an addition, for each element of a tensor with the sizes `spread`. Type tf32
is float32 that tensor cores may round.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Any, Final

from ..model import xla_names
from . import messages

# xla.PrimitiveType number: (name of the type, its size in bits).
_TYPES: Final[Mapping[int, tuple[str, int]]] = MappingProxyType(
    {
        1: ("bool", 8), 2: ("int8", 8), 3: ("int16", 16), 4: ("int32", 32), 5: ("int64", 64), 6: ("uint8", 8),
        7: ("uint16", 16), 8: ("uint32", 32), 9: ("uint64", 64), 10: ("float16", 16), 11: ("float32", 32),
        12: ("float64", 64), 15: ("complex64", 64), 16: ("bfloat16", 16), 18: ("complex128", 128),
        19: ("float8", 8), 20: ("float8", 8), 21: ("int4", 4), 22: ("uint4", 4), 23: ("float8", 8),
        24: ("float8", 8), 25: ("float8", 8), 28: ("float8", 8), 29: ("float8", 8), 32: ("float4", 4),
    }
)  # fmt: skip
_GEMM: Final = re.compile(r"__cublas\$(?:gemm|lt\$matmul(?:\$f8)?)")
_CONVOLUTION: Final = re.compile(r"__cudnn\$conv(?:Forward|BackwardInput|BackwardFilter|BiasActivationForward)")
# Parts of instructions' names: functions that JAX compiled; derivatives (grad is the transpose of jvp); words for
# training.
_JAX: Final = re.compile(r"\b(?:p?jit|pmap|shard_map)\(")
_DERIVATIVE: Final = re.compile(r"\bjvp\(|\btranspose\(")
_TRAINING: Final = re.compile(r"(?i)train|optim|adam|sgd|grad|loss|learn|fit\b|update_?(?:step|params|state)")
# Limits for damaged files, beyond any compiler's output: nesting of computations, products per instruction,
# dimensions.
_DEEPEST, _PRODUCTS, _DIMENSIONS = 8, 64, 16


def message() -> type[Any]:
    """The class of HloProto."""
    return messages.message("hlo.desc", "xla.HloProto")


@dataclass(frozen=True, slots=True)
class Program:
    """One XLA module and the work of its instructions, as JSON (see the module's docstring).

    `instructions`: instruction name -> work, for instructions with products. `graphs`: instruction that launches a CUDA
    graph -> kernel name -> work inside the graph. Kernel "" stands for all library calls of the graph together. Graph
    "" holds all instructions of a module that was dumped before XLA divided it into graphs. `paths`: name of a kernel
    that XLA compiled -> the framework's operator path, where known. `differentiates`: True if JAX computes a derivative
    in the module; False if it has products made by JAX and no name in it speaks of a derivative or of training; None if
    unknown.
    """

    instructions: Mapping[str, str]
    graphs: Mapping[str, Mapping[str, str]]
    paths: Mapping[str, str]
    differentiates: bool | None = None

    def of_kernel(self, instruction: str, kernel: str) -> str:
        """The work of a kernel that an instruction launched, as JSON; "" if unknown."""
        if instruction in self.instructions or not instruction.startswith(xla_names.COMMAND_BUFFER):
            return self.instructions.get(instruction, "")
        inside = self.graphs.get(instruction, self.graphs[""])
        name = kernel.removesuffix(".kd")  # AMD's
        return inside[name] if name in inside else inside[""]


def program(serialized: bytes) -> Program | None:
    """Parse a serialized HloProto; None if the bytes are not one."""
    from google.protobuf.message import DecodeError

    try:
        module = message().FromString(serialized).hlo_module
    except (DecodeError, ValueError, RecursionError):
        return None
    read = _Module(module)
    instructions: dict[str, str] = {}
    graphs: dict[str, dict[str, str]] = {"": {"": ""}}
    for computation in module.computations:
        for one in computation.instructions:
            if one.opcode == "call" and one.name.startswith(xla_names.COMMAND_BUFFER):
                graphs[one.name] = read.graph(one)
            elif text := read.text([one]):
                instructions[one.name] = text
                graphs[""][xla_names.of_kernel(one.name)] = text
    paths = {
        xla_names.of_kernel(one.name): path
        for computation in module.computations
        for one in computation.instructions
        if xla_names.compiled(one.name) and (path := read.path(one))
    }
    return Program(instructions, graphs, paths, _differentiates(module))


def _differentiates(module: Any) -> bool | None:
    """True if a module computes gradients, by the names of all instructions, also of fused ones; None: not known."""
    inside = [one for computation in module.computations for one in computation.instructions]
    names = {one.metadata.op_name for one in inside}
    if any(_DERIVATIVE.search(name) for name in names):
        return True
    multiplies = any(one.opcode in ("dot", "convolution") or _is_product(one.custom_call_target) for one in inside)
    if not multiplies or not any(_JAX.search(name) for name in names):
        return None
    return None if any(_TRAINING.search(name) for name in (module.name, *names)) else False


def _is_product(target: str) -> bool:
    """True if this library call is a matrix product or a convolution."""
    return bool(_GEMM.fullmatch(target) or _CONVOLUTION.fullmatch(target))


class _Module:
    def __init__(self, module: Any) -> None:
        self._computations = {one.id: one for one in module.computations}
        # Ids of instructions may be unique only within a computation; an instruction's operands lie in its
        # computation.
        self._by_id: dict[int, dict[int, Any]] = {}
        self._home: dict[str, int] = {}
        self._of_computation: dict[int, list[dict[str, Any] | None]] = {}
        self._graphs: dict[tuple[int, ...], dict[str, str]] = {}
        for computation in module.computations:
            self._by_id[computation.id] = {one.id: one for one in computation.instructions}
            self._home |= dict.fromkeys((one.name for one in computation.instructions), computation.id)

    def graph(self, launch: Any) -> dict[str, str]:
        """kernel name -> work in a CUDA graph; "" for all library calls, since the library chooses their kernels'
        names."""
        called = tuple(launch.called_computation_ids)
        if called not in self._graphs:
            self._graphs[called] = self._graph([one for number in set(called) for one in self._inside(number)])
        return self._graphs[called]

    def _graph(self, inside: list[Any]) -> dict[str, str]:
        if any(one.opcode in ("while", "conditional") for one in inside):  # how often these run is not known
            inside = []
        calls = [one for one in inside if one.opcode == "custom-call"]
        found = {xla_names.of_kernel(one.name): self.text([one]) for one in inside if one.opcode != "custom-call"}
        return found | {"": self.text(calls) if all(map(self._is_known, calls)) else ""}

    def path(self, one: Any) -> str:
        """The framework's operator path of an instruction, else the most frequent path of the instructions fused in
        it."""
        if "/" in one.metadata.op_name:
            return str(one.metadata.op_name)
        fused = [inner.metadata.op_name for number in one.called_computation_ids for inner in self._inside(number)]
        told = Counter(path for path in fused if "/" in path)
        return max(told, key=told.__getitem__) if told else ""

    def text(self, instructions: list[Any]) -> str:
        """The work of these instructions together, as JSON; "" if they have no products, too many, or a product of
        unknown size."""
        products: list[dict[str, Any]] = []
        moved = 0
        for one in instructions:
            mine = list(islice(self._products(one), _PRODUCTS + 1))
            if None in mine or len(mine) > _PRODUCTS:
                return ""
            products += [product for product in mine if product is not None]
            if mine:
                sizes = [_bytes(shape) for shape in [*map(_shape, self._operands(one)), *self._results(one)]]
                if None in sizes:
                    return ""
                moved += sum(size for size in sizes if size is not None)
        return json.dumps({"products": products, "bytes": moved}) if products else ""

    def _inside(self, number: int) -> list[Any]:
        computation = self._computations.get(number)
        return list(computation.instructions) if computation else []

    def _is_known(self, call: Any) -> bool:
        """True unless this is a call of a CUDA library that is not known as a product."""
        target = call.custom_call_target
        return _is_product(target) or not target.startswith("__cu")

    def _results(self, one: Any) -> list[Any]:
        """Shapes of an instruction's results. The workspace, which a library call returns after its result, is left
        out."""
        shapes = list(one.shape.tuple_shapes) or [one.shape]
        return shapes[:1] if one.opcode == "custom-call" else shapes

    def _operands(self, one: Any) -> list[Any]:
        known = self._by_id[self._home[one.name]]
        return [known[number] for number in one.operand_ids if number in known]

    def _fused(self, number: int, depth: int) -> list[dict[str, Any] | None]:
        """The products of a computation (cached); [None] if it calls itself, nests too deep or has too many
        products."""
        if number not in self._of_computation:
            self._of_computation[number] = [None]
            mine = (product for one in self._inside(number) for product in self._products(one, depth + 1))
            if depth < _DEEPEST and len(found := list(islice(mine, _PRODUCTS + 1))) <= _PRODUCTS:
                self._of_computation[number] = found
        return self._of_computation[number]

    def _products(self, one: Any, depth: int = 0) -> Iterator[dict[str, Any] | None]:
        """The products of an instruction and of the instructions fused in it; None for a product of unknown size."""
        if one.opcode == "fusion":
            for number in one.called_computation_ids:
                yield from self._fused(number, depth)
        elif one.opcode == "dot":
            axes = [int(axis) for axis in one.dot_dimension_numbers.lhs_contracting_dimensions]
            yield self._dot(one, axes, _rounds(one.precision_config))
        elif one.opcode == "convolution":
            dilated = any(dimension.base_dilation > 1 for dimension in one.window.dimensions)
            yield None if dilated or one.batch_group_count > 1 else self._convolution(one, "Forward")
        elif one.opcode == "custom-call" and _GEMM.fullmatch(one.custom_call_target):
            told = _of_gemm(one.backend_config)
            yield None if told is None else self._dot(one, *told)
        elif one.opcode == "custom-call" and _CONVOLUTION.fullmatch(one.custom_call_target):
            yield self._convolution(one, one.custom_call_target)

    def _dot(self, one: Any, axes: list[int], rounds: bool) -> dict[str, Any] | None:
        operands = self._operands(one)
        sizes = [list(operand.shape.dimensions) for operand in operands[:2]]
        if len(sizes) < 2 or len(axes) > _DIMENSIONS or not all(0 <= axis < len(sizes[0]) for axis in axes):
            return None
        contracted = prod(sizes[0][axis] for axis in axes)
        return _product(operands[0], sizes, self._results(one)[0], contracted, rounds)

    def _convolution(self, one: Any, way: str) -> dict[str, Any] | None:
        """The product of a convolution; backward convolutions use the forward convolution's dimension numbers."""
        operands = self._operands(one)
        if len(operands) < 2:
            return None
        first, second, result = operands[0].shape, operands[1].shape, self._results(one)[0]
        spread, kernel = result, second
        if "BackwardInput" in way:
            spread = first
        elif "BackwardFilter" in way:
            spread, kernel = second, result
        sizes, outputs = list(kernel.dimensions), one.convolution_dimension_numbers.kernel_output_feature_dimension
        if not 0 <= outputs < len(sizes) <= _DIMENSIONS or not sizes[outputs]:
            return None
        operand_sizes = [list(first.dimensions), list(second.dimensions)]
        contracted = prod(sizes) // sizes[outputs]
        return _product(operands[0], operand_sizes, spread, contracted, _rounds(one.precision_config))


def _shape(one: Any) -> Any:
    return one.shape


def _product(operand: Any, sizes: list[list[int]], spread: Any, contracted: int, rounds: bool) -> dict[str, Any] | None:
    if operand.shape.element_type not in _TYPES or max(map(len, [*sizes, spread.dimensions])) > _DIMENSIONS:
        return None
    kind = _TYPES[operand.shape.element_type][0]
    if kind == "float32" and rounds:
        kind = "tf32"
    return {"type": kind, "operands": sizes, "spread": list(spread.dimensions), "contracted": contracted}


def _rounds(precision: Any) -> bool:
    """True if XLA rounds operands to TF32: unless an algorithm or the highest precision (2) is asked for."""
    return not precision.algorithm and max(precision.operand_precision, default=0) < 2


def _bytes(shape: Any) -> int | None:
    """Size of a value in bytes; 0 for a tuple, whose parts are counted elsewhere; None for an unknown type."""
    if shape.tuple_shapes:
        return 0
    kind = _TYPES.get(shape.element_type)
    return None if kind is None or len(shape.dimensions) > _DIMENSIONS else prod(shape.dimensions) * kind[1] // 8


def _of_gemm(config: bytes) -> tuple[list[int], bool] | None:
    """(contracted dimensions of the first operand, True if rounding to TF32 is allowed), from the config of a cuBLAS
    call."""
    try:
        told = json.loads(config)
        told = told.get("gemm_backend_config", told)
        precision = told.get("precision_config", {})
        rounds = precision.get("algorithm", "ALG_UNSET") == "ALG_UNSET"
        rounds &= "HIGHEST" not in precision.get("operand_precision", [])
        axes = told["dot_dimension_numbers"].get("lhs_contracting_dimensions", [])
        return [int(axis) for axis in axes], rounds
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
